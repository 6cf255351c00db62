"""Jobs that a framework runs in another thread than the first of the process: that one shows where the rank is."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.collection import Collection
from tests.recordings.job import SECOND
from tests.recordings.places import ALL_REDUCE, HOST_CODE, JOB, LIB, SITE, Place
from tests.recordings.verdicts import named, verdict_of

SERVES: Place = (
    ("Worker.main_loop", f"{SITE}actors/worker.py", 1069),
    ("<module>", f"{SITE}actors/workers/default_worker.py", 323),
)
ENDS: Place = (("_shutdown", f"{LIB}threading.py", 1590),)
READS: Place = (("Queue.get", f"{LIB}queue.py", 171), ("main", JOB, 88), ("<module>", JOB, 97))


def _collected(tmp_path: Path, main: Place) -> Path:
    """Rank 2 is in its own code, the others in a collective, all in a second thread; the main threads are at `main`."""
    found = Collection(4, 60 * SECOND)
    for rank in range(4):
        found.rank(rank)
        found.samples(rank)
        found.stacks(rank, *[HOST_CODE if rank == 2 else ALL_REDUCE] * 3, main=main)
    return found.write(tmp_path)


def test_the_thread_that_runs_the_job_stands_for_its_rank(tmp_path: Path) -> None:
    verdict = verdict_of(_collected(tmp_path, SERVES))
    assert (verdict.outcome, named(verdict)) == (Outcome.HANG, {2})
    assert any("rank 2's thread runner at" in item.statement for item in verdict.suspects[0].evidence)


@pytest.mark.parametrize("main", [ENDS, READS])
def test_a_main_thread_that_ends_or_runs_the_job_stands_for_itself(main: Place, tmp_path: Path) -> None:
    """Where it ends, or is in code of the job, what other threads do is no wait of the rank."""
    verdict = verdict_of(_collected(tmp_path, main))
    assert not any("thread runner" in item.statement for suspect in verdict.suspects for item in suspect.evidence)
