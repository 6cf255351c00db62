"""A rank that works in small pieces with pauses while the others wait at a barrier: it wakes more often than one that polls."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.collection import Collection
from tests.recordings.job import SECOND, Job
from tests.recordings.places import BARRIER, JOB, Place
from tests.recordings.verdicts import named, verdict_of

VALIDATES: Place = (("validate", JOB, 19), ("main", JOB, 31), ("<module>", JOB, 97))
SLEEPS, LOCK = "hrtimer_nanosleep", "futex_do_wait"


def outcome_of(tmp_path: Path, woken: int, wchan: str | None, state: str = "S") -> tuple[Outcome, set[int]]:
    """What is said of rank 2, woken so many times in two seconds, for which two others wait in a call without a record."""
    found = Collection(3, Job(3).now_ns + 60 * SECOND)
    for rank in range(3):
        found.rank(rank)
        if rank == 2:
            found.samples(rank, state, moving=True, woken=woken, wchan=wchan)
        else:
            found.samples(rank, wchan=LOCK)
        found.stacks(rank, *[VALIDATES if rank == 2 else BARRIER] * 3)
    verdict = verdict_of(found.write(tmp_path))
    return verdict.outcome, named(verdict)


def test_a_rank_that_wakes_a_hundred_times_a_second_may_only_have_more_to_validate(tmp_path: Path) -> None:
    assert outcome_of(tmp_path, 200, SLEEPS) == (Outcome.INCONCLUSIVE, set())


@pytest.mark.parametrize(("woken", "wchan"), [(20, SLEEPS), (2, SLEEPS), (400, LOCK)], ids=["it polls", "it sleeps", "a lock"])
def test_one_that_polls_or_waits_for_a_lock_holds_up_the_others(tmp_path: Path, woken: int, wchan: str) -> None:
    assert outcome_of(tmp_path, woken, wchan) == (Outcome.HANG, {2})


def test_a_rank_that_is_always_ready_to_run_is_at_work_also_on_a_host_short_of_cpu(tmp_path: Path) -> None:
    """It may loop for ever or work: waiting time of the others unknown, as without a busy host."""
    assert outcome_of(tmp_path, 400, None, "R") == (Outcome.INCONCLUSIVE, set())
