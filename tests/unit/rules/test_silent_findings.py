"""Ranks that left nothing: absence is evidence when it is one rank, a gap when it is most of them."""

from __future__ import annotations

from pathlib import Path

from forensics.model import Cause, Confidence, Outcome
from tests.recordings.collection import Collection, loose
from tests.recordings.job import SECOND, Job
from tests.recordings.places import ALL_REDUCE, HOST_CODE
from tests.recordings.verdicts import named, verdict_of


def test_a_silent_rank_that_the_others_wait_for_is_named(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(10)
    job.hang({2})
    verdict = verdict_of(loose(job, tmp_path, ranks=(0, 1, 3)))
    (first,) = verdict.suspects
    assert (first.ranks, first.cause, first.rules) == ((2,), Cause.UNKNOWN, ("FX150",))
    assert first.confidence is not Confidence.CONFIRMED


def test_several_silent_ranks_cannot_be_told_apart(tmp_path: Path) -> None:
    job = Job(6)
    job.steps(10)
    job.hang({2, 4})
    verdict = verdict_of(loose(job, tmp_path, ranks=(0, 1, 3, 5)))
    (first,) = verdict.suspects
    assert (first.ranks, first.members, first.confidence) == ((2, 4), "one_of", Confidence.SUSPECT)


def test_more_silent_ranks_than_others_accuse_nobody(tmp_path: Path) -> None:
    """Three of four hosts were not collected: that is a gap, not a finding."""
    job = Job(8, "nccl")
    job.steps(10)
    job.hang({5})
    verdict = verdict_of(loose(job, tmp_path, ranks=(0, 1)))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert not verdict.suspects


def test_a_rank_without_a_dump_but_inside_the_operation_is_not_silent(tmp_path: Path) -> None:
    """Rank 3 has no dump, its stack shows that it waits like the others; rank 2 is the one that does not."""
    job = Job(4)
    job.steps(10)
    job.hang({2})
    found = Collection(4, job.now_ns + 60 * SECOND)
    for rank in range(4):
        found.rank(rank)
        found.looks(rank)
        found.stacks(rank, *[HOST_CODE if rank == 2 else ALL_REDUCE] * 3)
        if rank != 3:
            found.dump(job, rank)
    assert named(verdict_of(found.write(tmp_path))) == {2}
