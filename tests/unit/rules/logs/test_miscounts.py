"""Calls that all look alike, one of which a rank left out, where hosts ran ahead of devices that wait for each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Cause
from tests.recordings.collection import loose
from tests.recordings.job import Group, Job
from tests.recordings.verdicts import verdict_of

TENSOR, CONTEXT = "tensor", "context"
STEP = (TENSOR, TENSOR, TENSOR, CONTEXT, TENSOR, TENSOR)


def launched(steps: int, programs: dict[int, tuple[str, ...]]) -> Job:
    """Two ranks that share two communicators: whole steps, then one of which each host launched its program at once."""
    job = Job(4, "nccl")
    groups = {name: [job.group(members, name) for members in ((0, 1), (2, 3))] for name in (TENSOR, CONTEXT)}
    for _ in range(steps):
        for name in STEP:
            for group in groups[name]:
                job.call(group)
        job.call(job.everyone, shapes=((1,),))
    for rank in range(4):
        _launch(job, groups, rank, programs.get(rank, STEP))
    return job


def _launch(job: Job, groups: dict[str, list[Group]], rank: int, program: tuple[str, ...]) -> None:
    """The calls of a rank after its first two are never done; of the other pair all are but the last."""
    for number, name in enumerate(program):
        job.call(groups[name][rank // 2], ranks=[rank], done=rank > 1 or number < 2)
    job.call(job.everyone, ranks=[rank], done=False, shapes=((1,),))


def test_one_call_less_is_no_other_order_of_launches(tmp_path: Path) -> None:
    """Rank 1 has one tensor call less between the calls of all; the devices of ranks 0 and 1 wait for each other."""
    job = launched(3, {1: (TENSOR, TENSOR, CONTEXT, TENSOR, TENSOR)})
    (suspect,) = verdict_of(loose(job, tmp_path)).suspects
    assert (suspect.ranks, suspect.cause) == ((1,), Cause.EXTRA_OR_MISSING_COLLECTIVE)
    assert "rank 1 made 4 calls" in suspect.evidence[0].statement


def test_another_order_of_launches_has_as_many_calls(tmp_path: Path) -> None:
    job = launched(3, {1: (TENSOR, TENSOR, CONTEXT, TENSOR, TENSOR, TENSOR)})
    suspects = verdict_of(loose(job, tmp_path)).suspects
    assert {suspect.cause for suspect in suspects} == {Cause.DEADLOCK}


def test_the_first_step_is_held_against_what_came_before_the_first_call_of_all(tmp_path: Path) -> None:
    """Numbers count from the start of the job: the one step before shows how many calls are usual."""
    job = launched(1, {1: (TENSOR, TENSOR, CONTEXT, TENSOR, TENSOR)})
    assert [suspect.ranks for suspect in verdict_of(loose(job, tmp_path)).suspects] == [(1,)]


def test_without_a_step_before_two_ranks_do_not_tell_which_is_odd(tmp_path: Path) -> None:
    job = launched(0, {1: (TENSOR, TENSOR, CONTEXT, TENSOR, TENSOR)})
    assert all(set(suspect.ranks) != {0} for suspect in verdict_of(loose(job, tmp_path)).suspects)


@pytest.mark.parametrize(("extra", "odd"), [((1,), [(1,)]), ((), [])])
def test_a_rank_that_left_nothing_does_not_hide_the_call_too_many_of_another(
    tmp_path: Path, extra: tuple[int, ...], odd: list[tuple[int, ...]]
) -> None:
    """Rank 1 is in one call more of the first four, who wait for it and for rank 4 in a call of all."""
    job = Job(5, "nccl")
    experts = job.group((0, 1, 2, 3), "expert")
    for _ in range(6):
        job.call(experts, "all_to_all")
        job.call(experts, "all_to_all")
        job.call(job.everyone, shapes=((1,),))
    if extra:
        job.call(experts, "all_to_all", extra, done=False)
    job.call(job.everyone, ranks=range(4), done=False, shapes=((1,),))
    suspects = verdict_of(loose(job, tmp_path, range(4))).suspects
    assert [suspect.ranks for suspect in suspects if suspect.ranks != (4,)] == odd
