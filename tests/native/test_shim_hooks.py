"""Both hooks in a job on the test bed: what they count is what the stand-ins know to be true."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from forensics.ingest.shim_log import layout
from forensics.ingest.shim_log.file import ShimFile, Table, read_file
from tests.native import testbed
from tests.native.shim_jobs import files
from tests.unit.ingest.reading import Result, read

pytestmark = pytest.mark.slow

PAIR = testbed.Shape(pp=2, per_host=1, steps=2)


def check_rank(job: testbed.Job, rank: int, log: Result) -> None:
    assert not log.problems
    # An operation that takes longer than a sweep of the heartbeat has rows of its way besides that of its end.
    ended = Counter(row["total"] for row in log.rows("chunk_states") if row["posted"] == row["total"])
    assert not Counter(step.total for step in job.steps(rank)) - ended
    assert all(row["posted"] <= row["total"] for row in log.rows("chunk_states"))
    found = {row["queue_pair"].split("/")[1]: row for row in log.rows("wr_samples") if row["locator"] < 0}
    for pair in job.pairs(rank):
        row = found[str(pair.number)]
        assert (row["posted"], row["posted_bytes"]) == (pair.sends, pair.bytes)
        assert row["in_flight"] == pair.signaled - pair.send_cqes == 0
        assert row["posted"] - row["completed"] == row["unacknowledged"]


def check_links(logs: Sequence[Result]) -> None:
    """Each flow has the queue pair whose other end belongs to the flow's peer, and the two ends carry the same flow."""
    pairs = [{row["queue_pair"]: row for row in log.rows("queue_pairs")} for log in logs]
    ends = {(row["gid"], row["number"]): (rank, row) for rank, each in enumerate(pairs) for row in each.values()}
    for rank, log in enumerate(logs):
        for flow in log.rows("flows"):
            pair = pairs[rank][flow["queue_pair"]]
            other, far = ends[pair["remote_nic"], int(pair["remote_queue_pair"])]
            assert (pair["channel"], pair["direction"], pair["peer"]) == (flow["channel"], flow["direction"], flow["peer"])
            assert (flow["local_nic"], flow["remote_nic"]) == (pair["nic"], far["gid"])
            assert other != rank and far["channel"] == flow["channel"] and far["direction"] != flow["direction"]
            assert far["communicator"] == pair["communicator"] == flow["communicator"] is not None


def test_counts_are_the_truth(built: Path, tmp_path: Path) -> None:
    shim = str(built / "libforensics_shim.so")
    logs = tmp_path / "logs"
    hooks = {"LD_PRELOAD": shim, "NCCL_PROFILER_PLUGIN": shim, "FORENSICS_SHIM_DIR": str(logs)}
    with testbed.start(testbed.built(), tmp_path / "job", PAIR, env=hooks) as job:
        assert job.finish() == [0, 0]
    found = [next(path for path in files(logs) if f".{rank}." in path.name) for rank in range(2)]
    read_logs = [read(path.read_bytes(), path.name) for path in found]
    for rank, log in enumerate(read_logs):
        check_rank(job, rank, log)
    check_links(read_logs)


def test_messages_of_a_group_are_distinguished_by_their_numbers(built: Path, tmp_path: Path) -> None:
    """The numbers with a peer are the same at both ends of each message, whatever order NCCL made of a group."""
    shim, logs = str(built / "libforensics_shim.so"), tmp_path / "logs"
    hooks = {"LD_PRELOAD": shim, "NCCL_PROFILER_PLUGIN": shim, "FORENSICS_SHIM_DIR": str(logs)}
    with testbed.start(testbed.built(), tmp_path / "job", PAIR, env=hooks) as job:
        assert job.finish() == [0, 0]
    ends: list[set[tuple[str, int, int, int]]] = []
    for rank, wanted in ((0, "send"), (1, "recv")):
        (path,) = [path for path in files(logs) if f".{rank}." in path.name]
        rows = [row for row in read(path.read_bytes(), path.name).rows("chunk_states") if row["direction"] == wanted]
        stated = [row for row in rows if row["pair_number"] is not None]
        ends.append({(row["communicator"], row["channel"], row["pair_number"], row["total"]) for row in stated})
    assert ends[0] == ends[1] and len(ends[0]) > 1


def proxy_slots(content: bytes) -> Table:
    """The proxy operations of a log's state pages that were ever used."""
    (log,) = read_file(io.BytesIO(content))
    assert isinstance(log, ShimFile)
    table = log.tables[layout.PROXY_OPS]
    used: Table = table[table["state"] != 0]
    return used


@pytest.mark.parametrize("release", ["2.23.4", "2.30.7"])
def test_work_for_another_process_is_distinguished(release: str, built: Path, tmp_path: Path) -> None:
    shim = str(built / "libforensics_shim.so")
    logs = tmp_path / "logs"
    hooks = {"LD_PRELOAD": shim, "NCCL_PROFILER_PLUGIN": shim, "FORENSICS_SHIM_DIR": str(logs)}
    bed = {"TESTBED_PXN": "1", "TESTBED_NCCL_VERSION": release}
    foreign = 0
    with testbed.start(testbed.built(), tmp_path / "job", testbed.Shape(dp=4, per_host=2, steps=2), env=hooks | bed) as job:
        assert job.finish() == [0] * 4
    for rank, process in enumerate(job.processes):
        (path,) = [path for path in files(logs) if f".{rank}." in path.name]
        slots = proxy_slots(path.read_bytes())
        stated = Counter((row["pid"], row["channel"], row["peer"], row["direction"] == 0, row["total"]) for row in slots)
        truth = Counter((step.pid, step.channel, step.peer, bool(step.is_send), step.total) for step in job.steps(rank))
        assert stated == truth
        assert ((slots["comm"] == layout.NO_COMM) == (slots["pid"] != process.pid)).all()
        assert (slots["op_number"][slots["pid"] != process.pid] == 0).all()
        unattributed = [row for row in read(path.read_bytes(), path.name).rows("flows") if row["communicator"] is None]
        assert len(unattributed) == sum(step.pid != process.pid for step in job.steps(rank))
        foreign += len(unattributed)
    assert foreign
