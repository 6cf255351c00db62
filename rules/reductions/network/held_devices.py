"""Devices that a call inside their host may hold: no log of the library shows where such a call stands on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NewType

import networkx as nx

from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.mismatch.disagreements import BlockingMismatches
from forensics.rules.reductions.network.chunk_flows import OpenFlows
from forensics.rules.reductions.network.flow_ends import NETWORK
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.ranks.shim_logs import ShimLogs
from forensics.rules.reductions.waits.graph import WaitGraph

HeldDevices = NewType("HeldDevices", frozenset[int])
"""Ranks whose devices may stand in a call inside their host."""

HeldByEnded = NewType("HeldByEnded", frozenset[int])
"""Living ranks whose devices may stand in a call that a process which is gone will not finish."""


@reduction
def held_by_ended(groups: Communicators, roster: Roster) -> HeldByEnded:
    """Members of the communicators of processes that ended, and not because they gave up waiting: their hosts run ahead."""
    gone = {rank for rank, facts in roster.ranks.items() if facts.ended}
    near = {rank for group in groups if gone.intersection(group.members) for rank in group.members}
    return HeldByEnded(frozenset(near - gone))


@reduction
def held_devices(
    calls: Calls,
    groups: Communicators,
    graph: WaitGraph,
    roster: Roster,
    flows: OpenFlows,
    blocking: BlockingMismatches,
    logs: ShimLogs,
) -> HeldDevices:
    """Ranks that share such a call with a rank that left no log or, by logs of the library alone, with a distant victim.

    By those alone too: whom calls inside the host join to one who may wait for a rank without a log; and the members of a
    communicator in which calls differ, and whom such calls join to them.
    """
    if not calls.from_shim:
        return HeldDevices(calls.undetermined)
    joined = _joined_within_hosts(groups, roster)
    apart = {rank for mismatch in blocking for rank in mismatch.calls}
    differing = apart | _beside(joined, apart)
    unseen = {*calls.undetermined, *_facing(flows, logs)}
    return HeldDevices(
        calls.undetermined
        | _beside(joined, unseen)
        | _held_by_victims(joined, graph)
        | _held_by_links(joined, flows)
        | differing
    )


def _held_by_victims(joined: Sequence[set[int]], graph: WaitGraph) -> frozenset[int]:
    """Ranks that communicators of their host join to a victim of a call that was not made elsewhere.

    The victim's device stands in front of that call, and the devices of its neighbours may stand in one that they share. Who
    did not make the call is not held, and neither is a rank that the one that did not make it waits for.
    """
    held: set[int] = set()
    for absent in graph.lacking:
        near = _beside(joined, set(graph.waiters(absent)))
        held |= near - {absent} - graph.awaited(absent)
    return frozenset(held)


def _held_by_links(joined: Sequence[set[int]], flows: OpenFlows) -> frozenset[int]:
    """Ranks joined in that way to an end of a flow that the network between two hosts does not deliver."""
    ends = {rank for flow in flows if flow.state in NETWORK for rank in (flow.sender, flow.proxy, flow.receiver)}
    return frozenset(_beside(joined, ends) - ends)


def _facing(flows: OpenFlows, logs: ShimLogs) -> frozenset[int]:
    """Ranks with an open flow whose other end left no log."""
    return frozenset(end.rank for flow in flows for end in flow.ends if not {flow.sender, flow.receiver} <= logs.keys())


def _beside(joined: Sequence[set[int]], ranks: set[int]) -> set[int]:
    """Members of a group with another rank that is one of these."""
    return {rank for members in joined for rank in members if ranks & members - {rank}}


def _joined_within_hosts(groups: Communicators, roster: Roster) -> list[set[int]]:
    """Ranks that communicators join, each of which has all of its members on one host."""
    found = nx.Graph()
    for group in groups:
        hosts = {roster.host_of(member) for member in group.members}
        if len(hosts) == 1 and None not in hosts:
            nx.add_path(found, group.members)
    return list(nx.connected_components(found))
