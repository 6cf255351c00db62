"""One hang that many tests damage: four ranks, rank 2 waits for data, the others for rank 2."""

from __future__ import annotations

from pathlib import Path

from tests.recordings.collection import Collection, whole, write
from tests.recordings.job import Job
from tests.recordings.places import LOADER_QUEUE

CULPRIT = 2
VICTIMS_DUMP = "ranks/0/fr/0.json"


def hung(steps: int = 12, backend: str = "gloo") -> Job:
    """Everybody but rank 2 waits in the reduction after `steps` finished ones."""
    job = Job(4, backend)
    job.steps(steps)
    job.hang({CULPRIT})
    return job


def collected() -> Collection:
    """A complete collection of it."""
    return whole(hung(), {CULPRIT: LOADER_QUEUE})


def with_member(folder: Path, content: bytes, path: str = VICTIMS_DUMP) -> Path:
    """The collection with one member replaced or added; by default the dump of a rank that only waits."""
    return write(folder, {**collected().finished(), path: content})


def two_halves(low: int, high: int) -> Job:
    """Two groups of three that share nobody; in each one rank does not come."""
    job = Job(6)
    groups = [job.group((0, 1, 2), "LOW"), job.group((3, 4, 5), "HIGH")]
    for _ in range(8):
        for group in groups:
            job.call(group)
    job.hang({low}, groups[0])
    job.hang({high}, groups[1])
    return job
