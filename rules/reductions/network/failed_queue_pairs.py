"""Queue pairs whose work request failed by itself: neither behind another one, nor as the echo of a process that is gone."""

from __future__ import annotations

from typing import NewType

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.network.work_requests import FLUSHED, NETWORK_STATUS, QueuePair, QueuePairs
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.ranks.shim_logs import ChunkLogs, ShimLogs

FailedQueuePairs = NewType("FailedQueuePairs", tuple[QueuePair, ...])
"""In the order of the queue pairs."""
UnansweredQueuePairs = NewType("UnansweredQueuePairs", tuple[QueuePair, ...])
"""Queue pairs with old requests in flight, of a job that stands still and of whose chunks nothing is known."""


@reduction
def failed_queue_pairs(roster: Roster, shim: ShimLogs, queue_pairs: QueuePairs) -> FailedQueuePairs:
    """Leave out errors that the end of another process accounts for, or may."""
    failed = (pair for pair in queue_pairs if pair.status not in (None, FLUSHED) and not _peer_gone(roster, shim, pair))
    return FailedQueuePairs(tuple(pair for pair in failed if not _may_be_echo(roster, shim, pair)))


@reduction
def unanswered_queue_pairs(
    roster: Roster, shim: ShimLogs, queue_pairs: QueuePairs, chunks: ChunkLogs, liveness: Liveness
) -> UnansweredQueuePairs:
    """Those whose other end lives: its NIC answers whatever the process does, unless what is between does not."""
    if chunks or liveness.motion is not Motion.STALLED:
        return UnansweredQueuePairs(())
    old = (pair for pair in queue_pairs if pair.status is None and pair.peer is not None and pair.peer in shim)
    return UnansweredQueuePairs(tuple(pair for pair in old if not _peer_gone(roster, shim, pair)))


def _peer_gone(roster: Roster, shim: ShimLogs, pair: QueuePair) -> bool:
    """Whether the process at the other end is known to be gone: then the error is its echo."""
    if pair.peer is None:
        return False
    facts, log = roster.rank(pair.peer), shim.get(pair.peer)
    return facts.dead or facts.stopped or facts.heartbeat_gap_ns is not None or (log is not None and log.ended)


def _may_be_echo(roster: Roster, shim: ShimLogs, pair: QueuePair) -> bool:
    """Whether the other end did not answer and is not known, while ranks without a log could be it: one of them may be gone."""
    return pair.status in NETWORK_STATUS and pair.peer is None and not set(roster.ranks) <= set(shim)
