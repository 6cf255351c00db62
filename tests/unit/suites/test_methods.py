"""The methods of comparison on recorded jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.fixtures.suites.baselines.methods import METHODS
from tests.recordings.collection import whole
from tests.recordings.job import Job
from tests.recordings.places import LOADER_QUEUE


@pytest.fixture(scope="module")
def missing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rank 2 does not come to a reduction."""
    job = Job(4)
    job.steps(12)
    job.hang({2})
    return whole(job, {2: LOADER_QUEUE}).tar(tmp_path_factory.mktemp("case") / "bundle.tar")


def named(method: str, bundle: Path) -> set[int]:
    with open_case([bundle]) as case:
        return {rank for blame in METHODS[method](case) for rank in blame.ranks}


def test_a_watchdog_misses_the_rank_that_does_not_come(missing: Path) -> None:
    assert named("missing rank", missing) == {2}


def test_one_that_looks_at_communication_only_sees_nothing_of_it(missing: Path) -> None:
    assert named("network only", missing) == set()


@pytest.mark.parametrize("name", ["fixed threshold", "similarity outlier", "operator level"])
def test_without_device_times_nobody_is_named(name: str, missing: Path) -> None:
    assert named(name, missing) == set()
