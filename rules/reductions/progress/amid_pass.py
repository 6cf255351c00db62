"""Ranks that stopped amid a pass: in a run of equal calls of a part of the job, where no rank does anything for all.

The first rank of a job or host evaluates, draws and saves for others, and does so between steps. A run of equal calls that
began behind a call of another communicator, and has been longer before, has no such place inside it, and neither is there one
between a message of a pipeline and the first call of the pass that it is for. Of a communicator of all ranks this is not said:
where each rank has the whole model, one can evaluate alone, and its run of gradients may go on over the end of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import NewType

from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.waits.graph import Wait, WaitGraph

AmidPass = NewType("AmidPass", frozenset[int])
"""Ranks that others wait for, and that stopped amid a pass."""

Call = tuple[str, str, str]
"""Communicator, kind, sizes."""
RECEIPTS = frozenset({"recv"})
LEAST_RUN = 2
"""Calls of the run that the rank has made itself: one alone may be the first of a step, unless a message came before it."""
_OWN = """
SELECT rank, communicator, kind, coalesce(input_sizes, '') FROM latest_call
WHERE list_contains($ranks, rank) AND family = 'recorder' ORDER BY rank, record_id, locator
"""


@reduction
def amid_pass(calls: Calls, graph: WaitGraph, groups: Communicators, roster: Roster) -> AmidPass:
    """Missing ranks whose last calls are those that a part of the job waits in; nobody without a recorder."""
    parts = {group.label for group in groups if len(group.members) < len(roster.ranks)}
    awaited: dict[int, set[Call]] = {}
    for wait in graph.waits:
        if wait.communicator in parts and wait.peers is None:
            for rank in wait.absent:
                awaited.setdefault(rank, set()).update(_calls_of(wait))
    own: dict[int, list[Call]] = {}
    for rank, *call in calls.connection.execute(_OWN, {"ranks": sorted(awaited)}).fetchall() if awaited else ():
        own.setdefault(rank, []).append((call[0], call[1], call[2]))
    return AmidPass(frozenset(rank for rank, made in own.items() if any(is_amid(made, call) for call in awaited[rank])))


def _calls_of(wait: Wait) -> set[Call]:
    return {(wait.communicator, call.kind, call.sizes) for call in wait.waiting.values() if call is not None}


def is_amid(own: Sequence[Call], awaited: Call) -> bool:
    """Whether a rank's calls end inside a run of the awaited one, or with a message behind which that came before."""
    if own and own[-1][1] in RECEIPTS and awaited[1] not in RECEIPTS:
        return any(before == own[-1] and after == awaited for before, after in pairwise(own))
    runs = [(call, sum(1 for _ in same)) for call, same in groupby(own)]
    if len(runs) < 2 or runs[-1][0] != awaited or runs[-2][0][0] == awaited[0]:
        return False
    begun = runs[-1][1] >= LEAST_RUN or runs[-2][0][1] in RECEIPTS
    return begun and any(call == awaited and length > runs[-1][1] for call, length in runs[:-1])
