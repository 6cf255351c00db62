"""Jobs that a framework runs in another thread than the first of the process: that one shows where the rank is."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.collection import Collection
from tests.recordings.job import SECOND
from tests.recordings.places import ALL_REDUCE, HOST_CODE, JOB, LIB, SITE, Place
from tests.recordings.verdicts import blamed, named, verdict_of

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


COMMUNICATES = ("all_reduce (torch/distributed/distributed_c10d.py:2810)", "sync (step.py:40)", "loop (step.py:71)")
READS_ALONE = ("readinto (socket.py:706)", "fetch (shards.py:12)", "loop (step.py:66)")
FETCHES = ("readinto (socket.py:706)", "fetch (shards.py:12)", "ahead (shards.py:30)")
BELOW = ("run (threading.py:982)", "_bootstrap_inner (threading.py:1045)", "_bootstrap (threading.py:1002)")


@pytest.mark.parametrize(("frames", "is_where_to_begin"), [(READS_ALONE, True), (FETCHES, False)])
def test_threads_pasted_without_their_main_ones(tmp_path: Path, frames: tuple[str, ...], is_where_to_begin: bool) -> None:
    """That which begins as the threads in which other ranks communicate; any other may be one that fetches ahead."""
    for rank in range(4):
        own = frames if rank == 1 else COMMUNICATES
        lines = "".join(f"    {frame}\n" for frame in (*own, *BELOW))
        head = f"Process {90 + rank}: python job.py\nPython v3.12.4 (/usr/bin/python3)\n\n"
        head += f'Thread {190 + rank} (active): "Thread-2 (go)"\n'
        (tmp_path / f"rank{rank}.txt").write_text(head + lines)
    verdict = verdict_of(tmp_path)
    assert not blamed(verdict)
    assert any("stacks of rank 1" in lead for lead in verdict.leads) == is_where_to_begin
