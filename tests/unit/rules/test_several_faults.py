"""Several faults in one job: each is named with its own victims."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import (
    Cause,
)
from tests.recordings.collection import Collection, whole
from tests.recordings.hang import two_halves
from tests.recordings.job import SECOND, Job
from tests.recordings.places import ALL_REDUCE, CHECKPOINT, FORWARD, HOST_CODE, LOADER_QUEUE, Place
from tests.recordings.verdicts import leaders, named, verdict_of, victims


def test_different_stages_behind_one_wait_are_distinguished(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(10)
    job.hang({1, 2})
    verdict = verdict_of(whole(job, {1: LOADER_QUEUE, 2: CHECKPOINT}).write(tmp_path))
    assert {suspect.ranks: suspect.cause for suspect in leaders(verdict)} == {
        (1,): Cause.DATALOADER_STALL,
        (2,): Cause.CHECKPOINT_STALL,
    }


@pytest.mark.parametrize(("low", "high"), [(0, 3), (2, 4), (1, 5)])
def test_two_faults_at_once_in_different_groups(tmp_path: Path, low: int, high: int) -> None:
    places: dict[int, Place] = {low: LOADER_QUEUE, high: HOST_CODE}
    verdict = verdict_of(whole(two_halves(low, high), places).write(tmp_path))
    found = leaders(verdict)
    assert {suspect.ranks: suspect.cause for suspect in found} == {
        (low,): Cause.DATALOADER_STALL,
        (high,): Cause.HOST_STALL,
    }
    assert len({suspect.fault for suspect in found}) == 2
    waiting = victims(verdict)
    assert {rank: waiting[rank] for rank in range(3) if rank != low} == {rank: (low,) for rank in range(3) if rank != low}
    assert {rank: waiting[rank] for rank in range(3, 6) if rank != high} == {
        rank: (high,) for rank in range(3, 6) if rank != high
    }


def test_a_dead_rank_without_a_dump_may_be_the_member_that_is_missing(tmp_path: Path) -> None:
    """It left no dump that says that it was in HIGH, whose members are inferred from those who wait in there."""
    job = two_halves(1, 4)
    found = Collection(6, job.now_ns + 60 * SECOND)
    for rank in (0, 1, 2, 3, 5):
        found.rank(rank)
        found.samples(rank)
        found.stacks(rank, *[LOADER_QUEUE if rank == 1 else ALL_REDUCE] * 3)
        found.dump(job, rank)
    found.rank(4, "absent", exit_signal=9)
    verdict = verdict_of(found.write(tmp_path))
    assert {suspect.ranks: suspect.cause for suspect in leaders(verdict)} == {
        (1,): Cause.DATALOADER_STALL,
        (4,): Cause.PROCESS_DEAD,
    }
    assert {rank: victims(verdict)[rank] for rank in (3, 5)} == {3: (4,), 5: (4,)}


def test_no_rank_is_suspect_and_its_own_victim(tmp_path: Path) -> None:
    verdict = verdict_of(whole(two_halves(0, 4), {0: FORWARD, 4: CHECKPOINT}).write(tmp_path))
    for row in verdict.victims:
        assert not set(row.ranks) & named(verdict)


def test_a_stalled_rank_does_not_explain_the_mismatch_of_others(tmp_path: Path) -> None:
    """Rank 3 issued another operation in LOW; rank 4 is stuck in HIGH: both are there, the one that more wait for first."""
    job = Job(6)
    low, high = job.group((0, 1, 2, 3), "LOW"), job.group((4, 5), "HIGH")
    for _ in range(8):
        job.call(low)
        job.call(high)
    job.call(low, "broadcast", (3,), done=False)
    job.call(low, ranks=(0, 1, 2), done=False)
    job.hang({4}, high)
    ranked = leaders(verdict_of(whole(job, {4: LOADER_QUEUE}).write(tmp_path)))
    assert [(suspect.ranks, suspect.cause) for suspect in ranked] == [
        ((3,), Cause.COLLECTIVE_MISMATCH),
        ((4,), Cause.DATALOADER_STALL),
    ]
