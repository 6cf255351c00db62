"""Which open flows of a job stand still on their own account, whatever their state: worked out once for all rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NewType

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.network.chunk_flows import Flow, OpenFlows, root_flows
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.waits.graph import Wait, WaitGraph

RootFlows = NewType("RootFlows", tuple[Flow, ...])
"""Open flows that stand still on their own account."""


@reduction
def standing_flows(flows: OpenFlows, ranks: Roster, graph: WaitGraph) -> RootFlows:
    """Roots among flows between processes that live, in flow order: the log of one that does not is out of date."""
    if not flows:
        return RootFlows(())
    gone = {rank for rank, facts in ranks.ranks.items() if facts.dead or facts.stopped or facts.heartbeat_gap_ns}
    alive = [flow for flow in flows if flow.sender not in gone and flow.receiver not in gone]
    return RootFlows(root_flows(alive, _elsewhere(ranks.ranks, graph)))


def _elsewhere(ranks: Mapping[int, RankFacts], graph: WaitGraph) -> Mapping[int, Collection[int]]:
    """Whom each rank waits for to make a call; whom it waits for because of a flow itself is no other reason to wait."""
    dead = {rank for rank, facts in ranks.items() if facts.dead}
    missing = {rank: frozenset(wait.missing) for rank, wait in _first_waits(graph).items()}
    return {
        rank: tuple(whom for whom in awaited if whom in dead or whom in missing.get(rank, ()))
        for rank, awaited in graph.waits_for.items()
    }


def _first_waits(graph: WaitGraph) -> Mapping[int, Wait]:
    """The first call that each rank waits in: whom it lacks has not made it."""
    first: dict[int, tuple[int, Wait]] = {}
    for wait in graph.waits:
        for rank, call in wait.waiting.items():
            order = call.order if call is not None else 0
            if rank not in first or order < first[rank][0]:
                first[rank] = (order, wait)
    return {rank: wait for rank, (_, wait) in first.items()}
