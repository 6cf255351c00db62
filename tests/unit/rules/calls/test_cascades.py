"""Ranks that died or were stopped while they waited are victims: the first to report is not the first to fail."""

from __future__ import annotations

from pathlib import Path

from forensics.model import Cause
from tests.recordings.collection import Collection, whole
from tests.recordings.hang import hung
from tests.recordings.job import SECOND
from tests.recordings.places import LOADER_QUEUE
from tests.recordings.verdicts import leaders, verdict_of, victims

TIMED_OUT = (
    "[rank{0}]:[E1120 13:50:40.826258055 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=13, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for 600029 milliseconds "
    "before timing out."
)


def after_the_watchdog(*, culprit_lives: bool) -> Collection:
    """The waiting ranks were aborted by their watchdog and left dumps; rank 2 still loads data, or the launcher ended it."""
    job = hung(backend="nccl")
    found = Collection(4, job.now_ns + 700 * SECOND)
    for rank in (0, 1, 3):
        found.rank(rank, "absent", exit_signal=6)
        found.log(rank, TIMED_OUT.format(rank))
        found.dump(job, rank)
    found.rank(2, "alive" if culprit_lives else "absent", exit_signal=None if culprit_lives else 15)
    found.dump(job, 2)
    if culprit_lives:
        found.samples(2)
        found.stacks(2, *[LOADER_QUEUE] * 3)
    return found


def test_ranks_that_their_watchdog_aborted_are_victims(tmp_path: Path) -> None:
    verdict = verdict_of(after_the_watchdog(culprit_lives=True).write(tmp_path))
    assert [(suspect.ranks, suspect.cause) for suspect in leaders(verdict)] == [((2,), Cause.DATALOADER_STALL)]
    assert {0, 1, 3} <= set(victims(verdict))


def test_when_all_are_gone_the_one_that_was_behind_comes_first(tmp_path: Path) -> None:
    verdict = verdict_of(after_the_watchdog(culprit_lives=False).write(tmp_path))
    assert not verdict.suspects or verdict.suspects[0].ranks == (2,)


def test_a_waiting_rank_that_a_debugger_stopped_comes_after_the_root(tmp_path: Path) -> None:
    found = whole(hung(), {2: LOADER_QUEUE})
    found.samples(0, "t", tracer=777)
    verdict = verdict_of(found.write(tmp_path))
    assert verdict.suspects[0].ranks == (2,)
