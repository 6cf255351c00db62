"""Devices that a call inside their host may hold: no log of the library shows where such a call stands on the device."""

from __future__ import annotations

from collections.abc import Mapping
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
        victims = graph.waiters(absent)
        near = {
            rank for victim in victims if victim in joined for rank in nx.node_connected_component(joined, victim) - {victim}
        }
        held |= near - {absent} - _awaited(graph.waits_for, absent)
    return frozenset(held)


def _joined_within_hosts(groups: Communicators, roster: Roster) -> nx.Graph:
    """Ranks as nodes; edges join the members of each communicator that has all of them on one host."""
    found = nx.Graph()
    for group in groups:
        hosts = {roster.host_of(member) for member in group.members}
        if len(hosts) == 1 and None not in hosts:
            nx.add_path(found, group.members)
    return found


def _awaited(waits_for: Mapping[int, tuple[int, ...]], rank: int) -> set[int]:
    """Ranks that `rank` waits for, directly or through others."""
    reached: set[int] = set()
    frontier = {rank}
    while frontier:
        frontier = {other for one in frontier for other in waits_for.get(one, ())} - reached
        reached |= frontier
    return reached
