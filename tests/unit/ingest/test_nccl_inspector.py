from __future__ import annotations

import random
from pathlib import Path

import orjson
import pytest

from tests.recordings.verdicts import verdict_of
from tests.unit.ingest.reading import SAMPLES, Result, read, sample

LABEL = "nccl:inspector-5d3c21a4477e09"


@pytest.fixture(scope="module")
def log() -> Result:
    return sample("nccl_inspector/handmade_node-1-pid7321.log")


@pytest.fixture(scope="module")
def verbose() -> Result:
    return sample("nccl_inspector/handmade_verbose_node-1-pid7400.log")


def entry(number: int, kind: str = "AllReduce", **other: object) -> bytes:
    header = {"id": "0x5d3c21a4477e09", "rank": 3, "n_ranks": 8, "nnodes": 2}
    metadata = {"inspector_output_format_version": "v4.0", "hostname": "node-1", "pid": 7321}
    operation = {"coll": kind, "coll_sn": number, "coll_msg_size_bytes": 8192, "coll_exec_time_us": 10, **other}
    return orjson.dumps({"header": header, "metadata": metadata, "coll_perf": operation}) + b"\n"


def test_operations_of_the_sample(log: Result) -> None:
    rows = log.rows("operations")
    assert [(row["kind"], row["op_id"], row["bytes"], row["state"]) for row in rows] == [
        ("all_reduce", 4, 1048576, "done"),
        ("all_reduce", 5, 1048576, "done"),
        ("all_reduce", 7, 1048576, "done"),
        ("reduce_scatter", 1, 65536, "done"),
    ]
    assert {row["communicator"] for row in rows} == {LABEL}
    assert [row["duration_ns"] for row in rows] == [214_000, 215_000, 217_000, None]  # the last one was timed on the host


def test_the_numbers_are_no_positions(log: Result) -> None:
    """Collectives are numbered by kind: equal numbers of two kinds are no disagreement."""
    for name in ("sequence", "snapshot", "enqueued_ns"):
        assert name not in log.rows("operations")[0]


def test_the_communicator_and_the_place_in_it(log: Result, verbose: Result) -> None:
    (state,) = log.rows("communicator_states")
    assert (state["group_rank"], state["size"], state["nodes"], state["name"]) == (3, 8, 2, None)
    assert state["comm_id"] == "0x5d3c21a4477e09"
    assert [row["name"] for row in verbose.rows("communicator_states")] == ["tp 0", "pp 0"]


def test_what_was_not_written_is_counted(log: Result, verbose: Result) -> None:
    (row,) = log.rows("coverage")
    assert (row["status"], row["reason"]) == ("partial", "1 of 5 numbered operations were not written: too small, or dropped")
    assert row["begin_ns"] == 1760000000004000000
    assert verbose.rows("coverage")[0]["status"] == "ok"
    assert log.config()["inspector.operations"] == "written=4 missing=1"
    assert log.config()["inspector.pid"] == "7321"


def test_who_wrote_it(log: Result) -> None:
    """The rank in the header is that within the communicator."""
    assert [(item.rank, item.host) for item in log.identities] == [(None, "node-1")]
    assert log.problems == []


def test_sends_and_receives_with_their_times(verbose: Result) -> None:
    gather, send, receive = verbose.rows("operations")
    assert (send["kind"], send["is_p2p"], send["peer"], send["op_id"]) == ("send", True, 1, 1)
    assert (receive["kind"], receive["op_id"], receive["duration_ns"]) == ("recv", 2, 790_000)
    assert gather["entered_ns"] == 1760000000000100000
    assert gather["device_start_ns"] - gather["entered_ns"] == 35_000  # the first of two channels
    assert gather["device_end_ns"] - gather["entered_ns"] == 262_000  # the last one


def test_unknown_kinds_stay_readable() -> None:
    assert read(entry(1, "NewKind")).rows("operations")[0]["kind"] == "newkind"


def test_a_cut_line_is_stated(log: Result) -> None:
    content = (SAMPLES / "nccl_inspector/handmade_node-1-pid7321.log").read_bytes()
    found = read(content[:-40])
    assert len(found.rows("operations")) == 3
    assert found.problems[0].locator == "line=4"


def test_cut_anywhere() -> None:
    content = (SAMPLES / "nccl_inspector/handmade_verbose_node-1-pid7400.log").read_bytes()
    whole = content.splitlines(keepends=True)
    for end in range(400, len(content), 101):
        found = read(content[:end])
        assert len(found.rows("operations")) + len(found.problems) == sum(1 for _ in content[:end].splitlines()), end
        assert len(found.problems) <= 1
    assert len(whole) == 3


def test_hostile_lines_never_raise() -> None:
    lines = [
        entry(1),
        b"[]\n",
        b"{}\n",
        b'{"header":[],"metadata":7,"coll_perf":{"coll":"AllReduce"}}\n',
        b'{"header":{"id":"0x1"},"metadata":null,"coll_perf":[]}\n',
        entry(1 << 63, coll_exec_time_us=-5, coll_msg_size_bytes="x"),
        entry(2, event_trace_ts={"kernel_events": [7, {"kernel_start_ts": "y"}], "coll_start_ts": 1 << 62}),
        b"[" * 5000 + b"\n",
        *[b"x\n"] * 40,
    ]
    found = read(b"".join(lines))
    assert [row["op_id"] for row in found.rows("operations")] == [1, None, 2]
    assert found.rows("operations")[1]["duration_ns"] is None
    assert len(found.problems) == 21
    assert found.problems[-1].message == "45 lines in all could not be read"


def test_damage_anywhere_never_raises() -> None:
    content = (SAMPLES / "nccl_inspector/handmade_node-1-pid7321.log").read_bytes()
    chance = random.Random(3)
    for _ in range(60):
        damaged = bytearray(content)
        for _ in range(chance.randrange(1, 60)):
            damaged[chance.randrange(400, len(content))] = chance.randrange(256)
        read(bytes(damaged))


def test_files_that_end_at_different_numbers_accuse_nobody(tmp_path: Path) -> None:
    """Of two kinds under equal numbers, with sizes that differ from rank to rank."""
    for rank in range(8):
        folder = tmp_path / f"rank_{rank}"
        folder.mkdir()
        calls = range(100 if rank == 2 else 150)
        kinds = ("AllReduce", "AllGather")
        lines = (entry(number, kind, coll_msg_size_bytes=8192 * (rank + 1)) for number in calls for kind in kinds)
        (folder / "node-1-pid7321.log").write_bytes(b"".join(lines))
    assert verdict_of(tmp_path).suspects == ()
