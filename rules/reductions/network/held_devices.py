"""Devices that a call inside their host may hold: no log of the library shows where such a call stands on the device."""

from __future__ import annotations

from typing import NewType

import networkx as nx

from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.waits.graph import WaitGraph

HeldDevices = NewType("HeldDevices", frozenset[int])
"""Ranks whose devices may stand in a call inside their host."""


@reduction
def held_devices(calls: Calls, groups: Communicators, graph: WaitGraph, roster: Roster) -> HeldDevices:
    """Ranks that share such a call with a rank that left no log or, by logs of the library alone, with a distant victim."""
    return HeldDevices(calls.undetermined | (_held_by_victims(groups, graph, roster) if calls.from_shim else frozenset()))


def _held_by_victims(groups: Communicators, graph: WaitGraph, roster: Roster) -> frozenset[int]:
    """Ranks that communicators of their host join to a victim of a call that was not made elsewhere.

    The victim's device stands in front of that call, and the devices of its neighbours may stand in one that they share. Who
    did not make the call is not held, and neither is a rank that the one that did not make it waits for.
    """
    joined = _joined_within_hosts(groups, roster)
    held: set[int] = set()
    for absent in graph.lacking:
        victims = set(graph.waiters(absent))
        near = {rank for ranks in joined for rank in ranks if victims & ranks - {rank}}
        held |= near - {absent} - graph.awaited(absent)
    return frozenset(held)


def _joined_within_hosts(groups: Communicators, roster: Roster) -> list[set[int]]:
    """Ranks that communicators join, each of which has all of its members on one host."""
    found = nx.Graph()
    for group in groups:
        hosts = {roster.host_of(member) for member in group.members}
        if len(hosts) == 1 and None not in hosts:
            nx.add_path(found, group.members)
    return list(nx.connected_components(found))
