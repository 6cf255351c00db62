"""Both doors in a job on the test bed: what they count is what the stand-ins know to be true."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.native import testbed
from tests.native.shim_jobs import files
from tests.unit.ingest.reading import Result, read

pytestmark = pytest.mark.slow

PAIR = testbed.Shape(pp=2, per_host=1, steps=2)


def check_rank(job: testbed.Job, rank: int, log: Result) -> None:
    assert not log.problems
    # An operation that takes longer than a look of the heartbeat has rows of its way besides that of its end.
    ended = Counter(row["total"] for row in log.rows("chunk_states") if row["posted"] == row["total"])
    assert not Counter(step.total for step in job.steps(rank)) - ended
    assert all(row["posted"] <= row["total"] for row in log.rows("chunk_states"))
    found = {row["queue_pair"].split("/")[1]: row for row in log.rows("wr_samples") if row["locator"] < 0}
    for pair in job.pairs(rank):
        row = found[str(pair.number)]
        assert (row["posted"], row["posted_bytes"]) == (pair.sends, pair.bytes)
        assert row["in_flight"] == pair.signaled - pair.send_cqes == 0
        assert row["posted"] - row["completed"] == row["unacknowledged"]


def test_counts_are_the_truth(built: Path, tmp_path: Path) -> None:
    shim = str(built / "libforensics_shim.so")
    logs = tmp_path / "logs"
    doors = {"LD_PRELOAD": shim, "NCCL_PROFILER_PLUGIN": shim, "FORENSICS_SHIM_DIR": str(logs)}
    with testbed.start(testbed.built(), tmp_path / "job", PAIR, env=doors) as job:
        assert job.finish() == [0, 0]
    for rank in range(2):
        (path,) = [path for path in files(logs) if f".{rank}." in path.name]
        check_rank(job, rank, read(path.read_bytes(), path.name))
