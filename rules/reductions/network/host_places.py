"""Members of a communicator that share a host: a flow shows what leaves it, and none what they hand on inside it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NewType

from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.network.flow_ends import Flow
from forensics.rules.reductions.ranks.roster import Roster

Place = tuple[int, ...]
"""Ranks that stand in a collective together; one alone where its host is not known."""

HostPlaces = NewType("HostPlaces", Mapping[tuple[str, int], Place])
"""Members of a communicator on the host of one of them, in order, by communicator and rank."""


@reduction
def host_places(groups: Communicators, roster: Roster) -> HostPlaces:
    """Which members of each communicator share a host."""
    found: dict[tuple[str, int], Place] = {}
    for group in groups:
        hosts: dict[str, list[int]] = defaultdict(list)
        for member in sorted(group.members):
            host = roster.host_of(member)
            if host is not None:
                hosts[host].append(member)
        found |= {(group.label, member): tuple(members) for members in hosts.values() for member in members}
    return HostPlaces(found)


def place_of(places: Mapping[tuple[str, int], Place], flow: Flow, rank: int) -> Place:
    """The place of a rank in the call of a flow; a message is between two ranks, wherever others are."""
    return (rank,) if flow.kind == "p2p" else places.get((flow.communicator, rank), (rank,))
