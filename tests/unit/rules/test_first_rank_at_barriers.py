"""All ranks but one are in a barrier: a first rank that prepares something for all, or one that hangs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.collection import loose, process_sample, whole
from tests.recordings.job import SECOND, Job
from tests.recordings.places import ALL_REDUCE, BARRIER, HOST_CODE, Place
from tests.recordings.verdicts import named, verdict_of


def waiting(at: int, kind: str) -> Job:
    """Everybody but one rank is in a call of this kind, behind some finished ones."""
    job = Job(4)
    job.steps(6)
    job.hang({at}, kind=kind)
    return job


@pytest.mark.parametrize(
    ("at", "kind", "expected"),
    [(0, "barrier", set()), (2, "barrier", {2}), (0, "all_reduce", {0})],
    ids=["the first rank", "another rank", "amid steps"],
)
def test_calls_alone_do_not_show_what_a_first_rank_does_for_all(tmp_path: Path, at: int, kind: str, expected: set[int]) -> None:
    assert named(verdict_of(loose(waiting(at, kind), tmp_path))) == expected


@pytest.mark.parametrize(
    ("at", "kind", "wakes", "seconds", "expected"),
    [
        (0, "barrier", 2, 15, set()),
        (0, "barrier", 0, 15, {0}),
        (0, "barrier", 2, 400, {0}),
        (0, "all_reduce", 2, 15, {0}),
        (2, "barrier", 2, 15, {2}),
    ],
    ids=["sleeps and wakes", "sleeps on", "for minutes", "amid steps", "another rank"],
)
def test_a_first_rank_that_sleeps_and_wakes(
    tmp_path: Path, at: int, kind: str, wakes: int, seconds: int, expected: set[int]
) -> None:
    wait: Place = BARRIER if kind == "barrier" else ALL_REDUCE
    places = {rank: HOST_CODE if rank == at else wait for rank in range(4)}
    found = whole(waiting(at, kind), places, silence_ns=seconds * SECOND, dumps=2)
    for number in range(3):
        time_ns = found.at_ns + 2 * number * SECOND
        found.members[f"ranks/{at}/proc/{number}.json"] = process_sample(
            at, time_ns, wchan="hrtimer_nanosleep", switches=40 + wakes * number
        )
    assert named(verdict_of(found.write(tmp_path))) == expected
