"""The stage of a host whose own stack tells none, from the calls before and after."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import StageName, Verdict
from tests.recordings.collection import whole
from tests.recordings.job import Frame, Job, as_pickle
from tests.recordings.places import ALL_REDUCE, FORWARD, GRADIENT_HOOK, HOST_CODE, Place
from tests.recordings.verdicts import verdict_of

CALL: Frame = ("all_reduce", "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 2900)


def missing(before: Place, after: dict[int, Place]) -> Job:
    """Rank 3 has left the call `before` and does not come to the next, which each of the others made where `after` says."""
    job = Job(4, "nccl")
    job.steps(10)
    job.call(job.everyone, frames=(CALL, *before))
    for rank, place in after.items():
        job.call(job.everyone, "all_reduce", (rank,), done=False, frames=(CALL, *place))
    return job


def diagnosed(job: Job, place: Place, tmp_path: Path) -> Verdict:
    """From stacks and from dumps as files, which have the frames of calls."""
    found = whole(job, {rank: place if rank == 3 else ALL_REDUCE for rank in range(4)})
    found.members |= {f"ranks/{rank}/fr/0.json": as_pickle(job.dump(rank)) for rank in range(4)}
    return verdict_of(found.write(tmp_path))


@pytest.mark.parametrize(
    ("before", "after", "stage"),
    [
        (FORWARD, {0: FORWARD, 1: FORWARD, 2: FORWARD}, StageName.FORWARD),
        (GRADIENT_HOOK, {0: GRADIENT_HOOK, 1: GRADIENT_HOOK, 2: GRADIENT_HOOK}, StageName.BACKWARD),
        (FORWARD, {0: GRADIENT_HOOK, 1: GRADIENT_HOOK, 2: GRADIENT_HOOK}, StageName.UNKNOWN),
        (FORWARD, {0: FORWARD, 1: FORWARD, 2: GRADIENT_HOOK}, StageName.UNKNOWN),
        (FORWARD, {0: FORWARD, 1: FORWARD, 2: ()}, StageName.UNKNOWN),
        ((), {0: FORWARD, 1: FORWARD, 2: FORWARD}, StageName.UNKNOWN),
    ],
    ids=[
        "in forward",
        "in backward",
        "between the two",
        "peers differ",
        "a peer's call tells nothing",
        "its own tells nothing",
    ],
)
def test_calls_around_tell_the_stage(before: Place, after: dict[int, Place], stage: StageName, tmp_path: Path) -> None:
    first = diagnosed(missing(before, after), HOST_CODE, tmp_path).suspects[0]
    assert (first.ranks, first.stage.name) == ((3,), stage)


def test_its_own_stack_comes_first(tmp_path: Path) -> None:
    first = diagnosed(missing(FORWARD, dict.fromkeys(range(3), FORWARD)), GRADIENT_HOOK, tmp_path).suspects[0]
    assert first.stage.name is StageName.BACKWARD
