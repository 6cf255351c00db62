"""Late ranks that wait for no other late one.

A rank that computes for too long comes last to the calls within its tensor group, in each pass. Its peers there come with it to
the reduction of gradients, and so do the ranks that messages tie to them: each of them is late there, by as much. Who is the
last within the group shows the one that is slow from those that are late because of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from forensics.rules.reductions.arrivals.lateness import Lateness, Latenesses
from forensics.rules.reductions.ranks.roster import Roster

# A late rank whose receivers or tensor peers are late too is distinguished from them by its cost.
_CLEARLY = 1.5
# Of what a rank costs, the part that is seen within its group at least: starts and ends are known less exactly than steps.
_LEAST_WITHIN = 0.3
_LEAST_LATE = 5
# Peers that a rank which is not seen elsewhere makes late there.
_LEAST_HELD_UP = 2


def roots(
    late: Latenesses, least: Callable[[Lateness], bool], is_own: Callable[[Lateness], bool] = lambda _: False
) -> Iterator[tuple[Lateness, tuple[int, ...]]]:
    """Late ranks that did not only wait for another late one, each with those of nearly its cost that may be meant.

    Those that are `least` late are kept. Members of groups in which a rank is last, however little that costs there, wait for
    it, and so do ranks that receive of those, unless their lateness `is_own`. Of them nobody else is meant where it is its own,
    or where its peers of another group wait for it too, unless messages of one whose lateness is its own account for that.
    """
    found, linked = late.found, late.linked
    material = [item for item in found if least(item)]
    first = _leaders(found, material)
    kept: list[tuple[Lateness, set[int], set[int]]] = []
    for item in sorted(material, key=lambda each: each.rank not in first):
        held = next((each for each in kept if item.rank in each[1]), None)
        is_leader = item.rank in first and held is not None and item.rank not in _members(held[0], found)
        if held is None or is_leader or (is_own(item) and item.rank not in _members(held[0], found)):
            kept.append((item, _reached(item, found, linked), set()))
        elif held[0].rank not in first and not is_own(held[0]) and _is_as_late(item, held[0], found):
            held[2].add(item.rank)
    own = [(item, reached) for item, reached, _ in kept if is_own(item)]
    led = {rank for rank in first if not is_own(first[rank])}
    kept = [each for each in kept if each[0].rank not in led or not any(_passes_on(*one, each[0], found) for one in own)]
    yield from ((replace(item, within=first.get(item.rank)), tuple(sorted(others))) for item, _, others in kept)


def _passes_on(late: Lateness, reached: Collection[int], item: Lateness, found: Sequence[Lateness]) -> bool:
    """Whether messages of a rank that is late by itself account for another one that only leads its peers.

    A message delays one call of each pass of those who receive it, and leaves them as late as its sender at most.
    """
    is_behind = item.rank in reached and item.rank not in _members(late, found)
    return is_behind and item.lost_ns < _CLEARLY * late.lost_ns


def in_step(
    late: Sequence[tuple[Lateness, tuple[int, ...]]],
    groups: Iterable[tuple[int, ...]],
    linked: Collection[tuple[int, int]],
    seen: Collection[int],
) -> list[tuple[Lateness, tuple[int, ...]]]:
    """Late ranks of a group that works in step, none of them last within it, as one: any of the group may be meant.

    So may a member that is not `seen` to come to any call: whoever works in step with it passes its lateness on. Ranks that
    receive of the group, and are not later than it, are of that one too: their sender may have left no record.
    """
    found = list(late)
    for group in groups:
        same = [each for each in found if each[0].rank in group and each[0].within is None]
        open_ = set(group) if len(same) > 1 else set(group) - set(seen)
        if same and open_ and not any(set(item.members) == set(group) for item, _ in same):
            (first, others), *rest = same
            reached = {b for a, b in linked if a in group} - {*group}
            later = [each for each in found if each[0].rank in reached and each[0].within is None]
            along = [each for each in later if each[0].lost_ns <= first.lost_ns]
            alike = {item.rank for item, _ in along if first.lost_ns < _CLEARLY * item.lost_ns}
            beside = {*others, *open_, *alike, *(rank for _, each in rest for rank in each)}
            left = [each for each in found if each not in same and each not in along]
            found = [(first, tuple(sorted(beside - {first.rank}))), *left]
    return found


def with_silent(ranks: tuple[int, ...], lateness: Latenesses, roster: Roster) -> tuple[int, ...]:
    """The others of some ranks of which one is late, with those that send to them and left no record of calls."""
    silent = {one for one, other in lateness.linked if other in ranks and not roster.rank(one).has_recorder}
    return tuple(sorted({*ranks[1:], *silent}))


def _is_as_late(item: Lateness, held: Lateness, found: Sequence[Lateness]) -> bool:
    """Whether a rank costs nearly what another one does that it does not meet where that one is last."""
    return held.lost_ns < _CLEARLY * item.lost_ns and item.rank not in _members(held, found)


def _members(late: Lateness, found: Sequence[Lateness]) -> set[int]:
    """Members of all groups in which the rank is late."""
    return {late.rank}.union(*(item.members for item in found if item.rank == late.rank))


def _reached(late: Lateness, found: Sequence[Lateness], linked: Collection[tuple[int, int]]) -> set[int]:
    reached = _members(late, found)
    while grown := {b for a, b in linked if a in reached} - reached:
        reached |= grown
    return reached


def _leaders(found: Sequence[Lateness], material: Sequence[Lateness]) -> Mapping[int, Lateness]:
    """Ranks that are late within a group whose other members are late elsewhere, by as much, and not within it; by rank.

    `material` are those of `found` that cost the job enough, most lost first. Of each rank the lateness within is returned.
    """
    cost: dict[int, Lateness] = {}
    for item in material:
        cost.setdefault(item.rank, item)
    return {item.rank: item for item in found if item.rank in cost and _leads(item, found, cost)}


def _leads(item: Lateness, found: Sequence[Lateness], cost: Mapping[int, Lateness]) -> bool:
    elsewhere = cost[item.rank]
    enough = item.late >= _LEAST_LATE and item.late * item.typical_ns >= _LEAST_WITHIN * elsewhere.lost_ns
    beside = (other for other in found if other.members == item.members and other.rank != item.rank)
    if not enough or any(_CLEARLY * other.lost_ns > item.lost_ns for other in beside):
        return False  # they take turns
    peers = [cost[rank] for rank in _peers(item, cost)]
    if item.members == elsewhere.members:
        return _holds_up_all(item, peers)
    return any(_as_much(peer, elsewhere) for peer in peers)


def _holds_up_all(item: Lateness, peers: Sequence[Lateness]) -> bool:
    """Whether a rank that is too seldom seen elsewhere is last in a group all others of which cost as much of the time there.

    Of two ranks alone either may be late by itself.
    """
    beyond = [peer for peer in peers if peer.members != item.members]
    alike = all(max(peer.share, item.share) < _CLEARLY * min(peer.share, item.share) for peer in beyond)
    return alike and len(beyond) == len(peers) >= _LEAST_HELD_UP


def _peers(item: Lateness, cost: Mapping[int, Lateness]) -> set[int]:
    return {rank for rank in item.members if rank != item.rank and rank in cost}


def _as_much(one: Lateness, other: Lateness) -> bool:
    return one.lost_ns < _CLEARLY * other.lost_ns and other.lost_ns < _CLEARLY * one.lost_ns
