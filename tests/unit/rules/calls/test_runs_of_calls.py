"""Who left out a step: the rank that makes more calls in a row than ever, where a gather of all was due."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Cause
from tests.recordings.collection import loose
from tests.recordings.job import Job
from tests.recordings.verdicts import leaders, verdict_of

STEADY = (2, 4, 4, 4, 4, 4)


def mesh(between: tuple[int, ...]) -> Job:
    """Pairs reduce so often between one gather of all and the next; then 0 and 1 gather while 2 and 3 go on."""
    job = Job(4)
    pairs = job.group((0, 2), "LEFT"), job.group((1, 3), "RIGHT")
    for number, calls in enumerate(between):
        for _ in range(calls):
            for pair in pairs:
                job.call(pair)
        if number < len(between) - 1:
            job.call(job.everyone, "all_gather")
            job.call(job.everyone, "all_gather")
    job.call(job.everyone, "all_gather", (0, 1), done=False)
    for pair, rank in zip(pairs, (2, 3), strict=True):
        job.call(pair, ranks=(rank,), done=False)
    return job


def test_ranks_that_made_one_call_more_than_ever_left_their_order(tmp_path: Path) -> None:
    (first,) = leaders(verdict_of(loose(mesh(STEADY), tmp_path)))
    assert (first.ranks, first.rules, first.cause) == ((2, 3), ("FX130",), Cause.DEADLOCK)


@pytest.mark.parametrize(
    "between",
    [(2, 4, 3, 5, 4, 4), (4, 4, 4), (*STEADY[:-1], 3)],
    ids=["never as often", "seldom before", "all come early"],
)
def test_without_a_habit_that_was_left_all_are_named(between: tuple[int, ...], tmp_path: Path) -> None:
    (first,) = leaders(verdict_of(loose(mesh(between), tmp_path)))
    assert first.ranks == (0, 1, 2, 3)
