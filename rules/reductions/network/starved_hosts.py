"""Hosts whose proxy threads come late to all that they do: what they receive waits for buffers, what they send is seen late.

A proxy that does not run offers buffers late, so that ready chunks of its senders wait, and looks late at the completions of
its own chunks, which then seem to stay at the NIC. A slow NIC, or path, of a host holds up what the host receives as well, at
the NIC of the sender; where links that lead to the host pause, and none of them is slow, its NICs take what comes. One link
alone is between two hosts; where those of several ranks lead to several others, the host is all that they share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NewType

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.network.channel_flows import ChannelFlows
from forensics.rules.reductions.network.proxy_pauses import Pauses
from forensics.rules.reductions.network.slow_ends import Link
from forensics.rules.reductions.network.slowness import LEAST_SHARE_BESIDE, Slowness
from forensics.rules.reductions.ranks.roster import Roster

# Of ranks, of other hosts, and of operations that paused: one is an accident, or a link.
_SEVERAL = 2


@dataclass(frozen=True, slots=True)
class StarvedHost:
    """A host with all of its `ranks`: `paused` links, and links whose completions it seems to see late (`late`), costliest
    first."""

    host: str
    ranks: tuple[int, ...]
    paused: tuple[Pauses, ...]
    late: tuple[ChannelFlows, ...]

    def touches(self, link: Link) -> bool:
        """Whether a link has an end on the host."""
        return not set(self.ranks).isdisjoint(link)


StarvedHosts = NewType("StarvedHosts", tuple[StarvedHost, ...])
"""The one host that accounts for all that pauses or is slow, if there is one."""


@reduction
def starved_hosts(slowness: Slowness, roster: Roster) -> StarvedHosts:
    """Look for the one host at which all links end that pause or are slow."""
    slow = slowness.slow_links()
    paused = {
        link: each
        for link, each in slowness.pauses.items()
        if link not in slow and each.paused >= _SEVERAL and each.share >= LEAST_SHARE_BESIDE
    }
    hosts = {rank: roster.host_of(rank) for rank in roster.ranks}
    common = set.intersection(*({hosts.get(rank) for rank in link} for link in [*slow, *paused])) if paused and slow else set()
    found = [host for host in common if host is not None and _is_late(host, slow, paused, hosts)]
    return StarvedHosts(tuple(_starved(host, slow.values(), paused.values(), hosts) for host in sorted(found)[:1]))


def _is_late(host: str, slow: Collection[Link], paused: Collection[Link], hosts: Mapping[int, str | None]) -> bool:
    """Whether what leads to a host pauses without being slow, and what leaves it is late, by several ranks to several hosts."""
    ends = {rank for link in (*slow, *paused) for rank in link}
    own = {rank for rank in ends if hosts.get(rank) == host}
    others = {hosts.get(rank) for rank in ends - own}
    awaited = any(link[1] in own and link[0] not in own for link in paused)
    return awaited and all(link[0] in own for link in slow) and min(len(own), len(others)) >= _SEVERAL


def _starved(host: str, slow: Iterable[ChannelFlows], paused: Iterable[Pauses], hosts: Mapping[int, str | None]) -> StarvedHost:
    ranks = tuple(sorted(rank for rank, at in hosts.items() if at == host))
    late = sorted(slow, key=lambda each: (-each.share, each.sender, each.receiver))
    return StarvedHost(
        host, ranks, tuple(sorted(paused, key=lambda each: (-each.share, each.sender, each.receiver))), tuple(late)
    )
