"""Requests in flight of a job that stands still: they show the way that does not answer, where nothing is known of chunks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from forensics.rules.reductions.network.failed_queue_pairs import unanswered_queue_pairs
from forensics.rules.reductions.network.work_requests import QueuePair, QueuePairs
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.ranks.shim_logs import ChunkLogs, ShimLog, ShimLogs

OLD = QueuePair(1, "mlx5_0/7", "mlx5_0", 1, 3, "::1", 4, 7_000_000_000, None, None, None, "x")
LOG = ShimLog(*[None] * len(ShimLog.__dataclass_fields__))  # type: ignore[arg-type]


def unanswered(
    pair: QueuePair = OLD,
    facts: Mapping[int, RankFacts] | None = None,
    chunks: Collection[int] = (),
    motion: Motion = Motion.STALLED,
    logs: Collection[int] = range(4),
) -> list[tuple[int, int | None]]:
    roster = Roster({rank: (facts or {}).get(rank, RankFacts(rank)) for rank in range(4)}, 4)
    shim = ShimLogs({rank: replace(LOG, ended=False) for rank in logs})
    found = unanswered_queue_pairs(roster, shim, QueuePairs((pair,)), ChunkLogs(frozenset(chunks)), Liveness(motion, ""))
    return [(each.rank, each.peer) for each in found]


def test_an_old_request_of_a_job_that_stands_still_is_unanswered() -> None:
    assert unanswered() == [(1, 3)]


@pytest.mark.parametrize(
    "pair", [replace(OLD, peer=None), replace(OLD, status=12)], ids=["its other end is not known", "failed"]
)
def test_what_does_not_show_the_way_is_left_out(pair: QueuePair) -> None:
    assert unanswered(pair) == []


def test_chunks_tell_more_and_a_job_that_moves_may_be_slow_only() -> None:
    assert unanswered(chunks=[1]) == unanswered(motion=Motion.MOVING) == []


def test_who_is_gone_or_left_no_log_answers_nothing_either() -> None:
    assert unanswered(facts={3: RankFacts(3, heartbeat_gap_ns=10**10)}) == unanswered(logs=[0, 1, 2]) == []
