"""Who waits for whom: waits that recorded calls show, then those of stacks, then those of logs and counters."""

from __future__ import annotations

from forensics.model import Family
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.samples import StacksByRank
from forensics.rules.reductions.waits.collective_waits import recorded_waits
from forensics.rules.reductions.waits.combined_positions import Positions
from forensics.rules.reductions.waits.graph import WaitGraph, explained_waits, wait_graph
from forensics.rules.reductions.waits.messages import MessageWaits
from forensics.rules.reductions.waits.point_to_point import point_to_point_waits
from forensics.rules.reductions.waits.reported import reported_waits
from forensics.rules.reductions.waits.unrecorded import joined_by_stack, waits_by_stack


@reduction
def known_waits(calls: Calls, placed: Positions, roster: Roster, samples: StacksByRank, messages: MessageWaits) -> WaitGraph:
    """The graph of all waits; what a process that is gone recorded is out of date."""
    ranks, groups = roster.ranks, placed.recorded
    gone = {rank for rank, facts in ranks.items() if (facts.dead and not facts.aborted) or facts.heartbeat_gap_ns}
    dumped = {rank for rank, facts in ranks.items() if facts.has_recorder} - (calls.logged - calls.dumped)
    heard = {Family.RECORDER: dumped, Family.SHIM: calls.logged}
    collective = recorded_waits(groups, ranks.keys(), ignore=gone, heard=heard)
    between_two = point_to_point_waits(calls.connection, groups, heard, ignore=gone)
    recorded = joined_by_stack((*collective, *between_two), roster, samples)
    found = (*recorded, *waits_by_stack(recorded, roster, samples, gone, messages))
    reports = reported_waits(placed.reported, roster, samples)
    return wait_graph(explained_waits(found) if calls.logged else found, *reports)
