"""Operations that some members finished or began and others did not: is it the device of the ones that are behind?"""

from __future__ import annotations

from typing import NewType

from forensics.case.database import rows_of
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.calls.semantics import SEPARATE, stem_of
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.waits.graph import Root, RootKind, WaitGraph

# Back ends whose operations run on the host: they have no device that could stall.
HOST_BACKENDS = frozenset({"gloo", "mpi", "unknown"})


def device_stall(groups: Communicators, root: Root) -> tuple[int, ...]:
    """Members that finished the operation of `root` while its ranks, not more of them, wait for their own completion.

    Empty when nobody finished, when most may wait, or when the back end has no device. Of messages that complete each by
    itself empty unless all others finished: else what is not through may be a message with one of them.
    """
    wait = root.waits[0]
    if root.kind is not RootKind.ALL_JOINED or not wait.communicator or wait.peers:
        return ()
    group = next(g for g in groups if g.label == wait.communicator)
    finished = tuple(rank for rank in group.finished(wait.sequence) if rank not in wait.waiting)
    if group.backend in HOST_BACKENDS or len(finished) < len(wait.waiting) + len(wait.unended):
        return ()
    kinds = {stem_of(call.kind) for call in wait.waiting.values() if call is not None}
    others = max(group.size, len(group.members)) - 1
    return finished if kinds.isdisjoint(SEPARATE) or len(finished) == others else ()


StartRecords = NewType("StartRecords", frozenset[int])
"""Ranks whose recorder shows when the device begins an operation; without timing it tells of none."""

_STARTS = """
SELECT DISTINCT rank FROM latest_call WHERE family = 'recorder' AND (device_start_ns IS NOT NULL OR state = 'started')
"""


@reduction
def start_records(calls: Calls) -> StartRecords:
    """A start that such a rank does not show has not happened: a dump asks the device once more about each operation."""
    return StartRecords(frozenset(rank for (rank,) in rows_of(calls.connection, "operations", _STARTS)))


_COMPUTING = """
SELECT rank FROM latest_call WHERE family = 'recorder' AND state <> 'done'
GROUP BY rank HAVING bool_and(state = 'pending')
"""
ComputingDevices = NewType("ComputingDevices", frozenset[int])
"""Ranks whose device has begun none of the calls that their host issued: it works on what was launched before them."""


@reduction
def computing_devices(calls: Calls, starts: StartRecords) -> ComputingDevices:
    """Only of ranks whose recorder shows what the device began."""
    return ComputingDevices(starts & {rank for (rank,) in rows_of(calls.connection, "operations", _COMPUTING)})


def not_begun(root: Root, graph: WaitGraph, records: StartRecords) -> tuple[int, ...]:
    """Members whose device has not begun the operation of `root` while the devices of others, not fewer, are inside it.

    All hosts issued it: what is in front of it on the stream of the device is not done. Empty where a start might be missing,
    also because a dump is cut and only counters tell that the call was made, and where such a device is inside another
    operation: then the order of the two is in question.
    """
    wait = root.waits[0]
    if root.kind is not RootKind.ALL_JOINED or not wait.communicator or wait.peers or not wait.waiting.keys() <= records:
        return ()
    if None in wait.waiting.values():
        return ()
    begun = {rank for rank, call in wait.waiting.items() if call is not None and call.started}
    behind = tuple(sorted(wait.waiting.keys() - begun))
    inside = {rank for other in graph.waits for rank, call in other.waiting.items() if call is not None and call.started}
    return behind if len(behind) <= len(begun) and inside.isdisjoint(behind) else ()
