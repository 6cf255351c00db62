"""Dumps that cannot be of one moment show a job that moved; a silence of a second or two shows nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.rules.engine import supply_of
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from tests.recordings.collection import Collection, loose, whole
from tests.recordings.hang import hung
from tests.recordings.job import MILLISECOND, SECOND, Job
from tests.recordings.places import ALL_REDUCE, FORWARD, OTHER_CODE, Place


def liveness_of(path: Path) -> Liveness:
    connection = open_case([path])
    try:
        return supply_of(connection).get(Liveness)
    finally:
        connection.close()


def dumped_early(steps: Mapping[int, int], kind: str = "all_reduce", backend: str = "nccl") -> Job:
    """Twenty finished calls; some ranks were dumped after fewer of them."""
    job = Job(4, backend)
    for _ in range(20):
        job.call(job.everyone, kind)
    calls = {rank: found[: steps.get(rank, 20)] for rank, found in job.calls.items()}
    return replace(job, calls=calls)


def test_a_call_that_all_must_enter_is_done_and_a_member_has_not_issued_it(tmp_path: Path) -> None:
    found = liveness_of(loose(dumped_early({1: 9}), tmp_path))
    assert found.motion is Motion.TOO_EARLY
    assert "rank 1 had not issued" in found.reason


def test_other_calls_of_the_group_do_not_matter(tmp_path: Path) -> None:
    """Nearly every job begins with a broadcast of its weights."""
    job = Job(4, "gloo")
    job.call(job.everyone, "broadcast")
    job.steps(20)
    early = replace(job, calls={rank: found[: 9 if rank == 1 else 21] for rank, found in job.calls.items()})
    assert liveness_of(loose(early, tmp_path)).motion is Motion.TOO_EARLY


@pytest.mark.parametrize(
    ("job"),
    [
        pytest.param(dumped_early({1: 19}), id="one call may have failed"),
        pytest.param(dumped_early({1: 9}, "broadcast"), id="the root of a broadcast leaves early"),
        pytest.param(hung(backend="nccl"), id="nobody comes out of what one did not enter"),
    ],
)
def test_what_proves_no_motion(job: Job, tmp_path: Path) -> None:
    assert liveness_of(loose(job, tmp_path)).motion is Motion.UNSEEN


@pytest.mark.parametrize(("silence", "motion"), [(1500 * MILLISECOND, Motion.TOO_EARLY), (5 * SECOND, Motion.STALLED)])
def test_a_short_silence_is_no_stall_however_quick_the_job(silence: int, motion: Motion, tmp_path: Path) -> None:
    assert liveness_of(whole(hung(), {}, silence_ns=silence, samples=1).write(tmp_path)).motion is motion


def test_a_short_silence_without_any_rhythm_is_no_stall(tmp_path: Path) -> None:
    assert liveness_of(whole(hung(steps=0), {}, silence_ns=SECOND, samples=1).write(tmp_path)).motion is Motion.TOO_EARLY


@pytest.mark.parametrize(
    ("later", "motion"),
    [
        pytest.param({0: FORWARD, 1: FORWARD, 2: OTHER_CODE}, Motion.MOVING, id="most went on"),
        pytest.param({0: FORWARD}, Motion.TOO_EARLY, id="most stayed"),
        pytest.param({}, Motion.TOO_EARLY, id="all stayed"),
    ],
)
def test_what_is_recent_goes_on_when_most_ranks_were_elsewhere_at_the_last_look(
    later: Mapping[int, Place], motion: Motion, tmp_path: Path
) -> None:
    job = Job(4, "nccl")
    job.steps(20)
    found = Collection(job.world, job.now_ns + SECOND // 10)
    for rank in range(job.world):
        found.rank(rank)
        found.dump(job, rank)
        found.stacks(rank, ALL_REDUCE, ALL_REDUCE, later.get(rank, ALL_REDUCE))
    assert liveness_of(found.write(tmp_path)).motion is motion
