"""FX120 by counts: what one phase of a step makes between two calls is no measure for another phase."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Cause, Verdict
from tests.recordings.collection import loose
from tests.recordings.job import Group, Job
from tests.recordings.verdicts import verdict_of


def steps(phases: tuple[int, ...], count: int = 5) -> tuple[Job, Group, Group]:
    """Each phase makes so many calls in one communicator, then one in the other; all ranks alike."""
    job = Job(2, "nccl")
    inner, outer = job.group((0, 1), "CONTEXT"), job.group((0, 1), "DATA")
    for _ in range(count):
        for made in phases:
            for _ in range(made):
                job.call(inner)
            job.call(outer)
    return job, inner, outer


def crossed(job: Job, inner: Group, outer: Group, common: int, alone: int, tmp_path: Path) -> Verdict:
    """After `common` calls rank 0 comes to the outer call, and rank 1 makes `alone` more inner ones."""
    for _ in range(common):
        job.call(inner)
    job.call(outer, "all_reduce", (0,), done=False)
    for _ in range(alone):
        job.call(inner, "all_reduce", (1,), done=False)
    return verdict_of(loose(job, tmp_path))


def by_counts(verdict: Verdict) -> list[tuple[int, ...]]:
    """Whom the number of calls accuses."""
    return [suspect.ranks for suspect in verdict.suspects if suspect.cause is Cause.EXTRA_OR_MISSING_COLLECTIVE]


@pytest.mark.parametrize(("phases", "common"), [((8, 1, 1, 1), 7), ((12, 1, 1, 1), 10), ((6, 2, 2, 2), 4)])
def test_a_long_phase_is_not_measured_by_short_ones(phases: tuple[int, ...], common: int, tmp_path: Path) -> None:
    assert by_counts(crossed(*steps(phases), common, 1, tmp_path)) == []


@pytest.mark.parametrize("usual", [1, 3])
def test_more_calls_than_any_interval_had_are_too_many(usual: int, tmp_path: Path) -> None:
    assert by_counts(crossed(*steps((usual,), 8), usual, 3, tmp_path)) == [(1,)]
