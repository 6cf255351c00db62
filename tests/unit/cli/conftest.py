"""A command to run, and a bundle to run it on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.collection import whole
from tests.recordings.job import Job
from tests.recordings.places import LOADER_QUEUE


def stuck() -> Job:
    """Rank 2 does not come to the thirteenth reduction."""
    job = Job(4)
    job.steps(12)
    job.hang({2})
    return job


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete collection of a job whose rank 2 waits for data."""
    return whole(stuck(), {2: LOADER_QUEUE}).tar(tmp_path_factory.mktemp("collected") / "bundle.tar")
