"""Ranks by which slow messages and collectives are accounted for: one that all of them share, else those that hang together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx

from forensics.rules.reductions.network.call_paces import CLOSE, CallPace, CallPaces


@dataclass(frozen=True, slots=True)
class SlowMembers:
    """Ranks by which slow calls are accounted for: one that all of them share, else those of which one is to blame.

    `share` is what the rank that loses most loses of the time in all of `calls`.
    """

    ranks: tuple[int, ...]
    calls: tuple[CallPace, ...]
    share: float

    @property
    def is_known(self) -> bool:
        """Whether it is one rank."""
        return len(self.ranks) == 1


def slow_members(paces: CallPaces, least_factor: float, least_share: float) -> list[SlowMembers]:
    """Those who lose so much of the time by slow calls, by the links and groups that hang together."""
    slow = paces.slow(least_factor, 0.0)
    graph = nx.Graph([(rank, each.ranks[0]) for each in slow for rank in each.ranks])
    found = []
    for together in map(set, nx.connected_components(graph)):
        calls = tuple(each for each in slow if each.ranks[0] in together)
        stated = _several_known(calls, paces)
        parts: list[tuple[tuple[int, ...], list[CallPace]]]
        parts = [((rank,), [each for each in calls if rank in each.ranks]) for rank in stated]
        for ranks, own in parts or [(_blamed(calls, paces, least_factor), list(calls))]:
            lost = {rank: sum(each.share for each in own if rank in each.ranks) for rank in together}
            share = min(1.0, max(lost.values()))
            if share >= least_share:
                found.append(SlowMembers(ranks, tuple(own), share))
    return sorted(found, key=lambda each: (-each.share, each.ranks))


def _several_known(calls: Sequence[CallPace], paces: CallPaces) -> tuple[int, ...]:
    """Ranks of which each accounts for slow calls with several others, of which one is cleared, where nobody has a part in all.

    Who reaches some other host as fast as others do is cleared, but not where a message may leave over the NIC of another rank.
    """
    crossing = all(each.hosts > 1 for each in calls)
    clear = {rank for each in paces.compared if each.factor < CLOSE and each.hosts > 1 and _is_own(each) for rank in each.ranks}
    if not crossing or not all(_is_own(each) for each in calls) or set(calls[0].ranks).intersection(*(c.ranks for c in calls)):
        return ()
    left = [set(each.ranks) - clear for each in calls]
    open_ = sorted(set[int]().union(*left))
    alone = {rank for own in left if len(own) == 1 for rank in own}
    several = all(len({other for each in calls if rank in each.ranks for other in each.ranks}) > 2 for rank in open_)
    return tuple(open_) if all(left) and alone.issuperset(open_) and several else ()


def _is_own(call: CallPace) -> bool:
    """Whether nobody but its members may have sent it on."""
    return call.kind != "send" or len(call.ranks) == 2


def _blamed(calls: Sequence[CallPace], paces: CallPaces, least_factor: float) -> tuple[int, ...]:
    """The one rank that all slow calls share, whose calls with several others are all slow; else all of them.

    What two ranks alone have in common may be the way between them as well.
    """
    shared = set(calls[0].ranks).intersection(*(each.ranks for each in calls))
    sound = {rank for each in paces.compared if each.factor < least_factor for rank in each.ranks}
    if len(shared) == 1 and shared.isdisjoint(sound):
        return tuple(shared)
    return tuple(sorted(shared or {rank for each in calls for rank in each.ranks}))
