from __future__ import annotations

import random
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forensics.ingest.shim_log import layout
from tests.unit.ingest.reading import SAMPLES, Result, read

PAGE = Path(__file__).parents[3] / "docs/formats/shim-log.md"
NAME = "vm.1.4242.1000.frx"
TABLES = {
    "Head": layout.HEAD,
    "Section directory": layout.SECTION,
    "Live page": layout.LIVE,
    "Rings": layout.RING,
    "A record": layout.RECORD,
    "Call": layout.CALL,
    "Proxy": layout.PROXY,
    "Waits": layout.WAITS,
    "Done": layout.DONE,
    "Queue pair": layout.QP,
    "Rate": layout.RATE,
    "Queue-pair event": layout.QP_EVENT,
    "Communicators": layout.COMM,
    "Proxy operations": layout.PROXY_OP,
    "Queue pairs": layout.QUEUE_PAIR,
    "Epoch bins": layout.EPOCH_BIN,
}


@pytest.fixture(scope="module")
def content() -> bytes:
    """A log of a job that held one of everything (fixtures/samples/README.md)."""
    return (SAMPLES / "shim_log" / "one_of_everything.frx").read_bytes()


@pytest.fixture(scope="module")
def log(content: bytes) -> Result:
    return read(content, NAME)


def sealed(content: bytes, **fields: Any) -> bytes:
    """The log with fields of its head changed and a checksum that fits."""
    head = np.frombuffer(content[: layout.HEAD_BYTES], layout.HEAD).copy()
    for name, value in fields.items():
        head[name] = value
    head["checksum"] = 0
    head["checksum"] = zlib.crc32(head.tobytes())
    return head.tobytes() + content[layout.HEAD_BYTES :]


def documented(title: str) -> list[tuple[int, int, str]]:
    text = PAGE.read_text().split(f"# {title}\n")[1].split("\n#")[0]
    rows = re.findall(r"^\| (\d+) \| (\d+) \| [\w\[\]]+ \| (\w+) \|", text, re.MULTILINE)
    return [(int(offset), int(size), name) for offset, size, name in rows]


@pytest.mark.parametrize("title", TABLES)
def test_the_page_describes_the_layout_that_is_read(title: str) -> None:
    fields = TABLES[title].fields
    assert fields is not None
    assert documented(title) == [(field[1], field[0].itemsize, name) for name, field in fields.items()]


def test_operations_of_the_sample(log: Result) -> None:
    rows = log.rows("operations")
    assert [(row["kind"], row["op_id"], row["count"]) for row in rows] == [
        ("all_reduce", 1, 1024),
        ("send", 2, 64),
        ("recv", 3, 64),
        ("broadcast", 4, 8),
    ]
    first, send, _, last = rows
    assert (first["bytes"], first["dtype"], first["state"], first["is_p2p"]) == (4096, "float32", "done", False)
    assert (send["peer"], send["pair_number"], send["root"], send["state"]) == (2, 1, None, "started")
    assert send["group_call"] == rows[2]["group_call"] is not None
    assert (last["root"], last["peer"], last["returned_ns"]) == (0, None, None)  # still inside
    assert first["entered_ns"] < first["returned_ns"] < send["entered_ns"]
    assert {row["communicator"] for row in rows} == {"nccl:00000000000000ab"}


def test_identity_and_configuration(log: Result) -> None:
    assert [(item.rank, item.host) for item in log.identities] == [(1, "node-1")]
    config = log.config()
    assert (config["world_size"], config["nccl_version"], config["shim.profiler_version"]) == ("4", "2.27.3", "4")
    assert config["shim.records.calls"] == "written=8 kept=8 overwritten=0 torn=0 dropped=0"


def test_chunks_and_flows(log: Result) -> None:
    chunks = {row["locator"]: row for row in log.rows("chunk_states")}
    stuck = next(row for row in chunks.values() if row["locator"] < 0)
    assert (stuck["total"], stuck["posted"], stuck["gpu_ready"], stuck["transmitted"], stuck["done"]) == (8, 5, 5, 3, 2)
    assert (stuck["direction"], stuck["peer"], stuck["channel"], stuck["received"]) == ("send", 2, 3, None)
    assert stuck["wait_credit_ns"] > 0 == stuck["wait_gpu_ns"]
    assert stuck["stuck_ns"] > 0
    flows = log.rows("flows")
    assert sorted((row["sequence"], row["bytes"], row["end_ns"] is None) for row in flows) == [(1, 4096, False), (2, 640, True)]


def test_queue_pairs_and_their_work(log: Result) -> None:
    pair = log.row("queue_pairs", number=77)
    assert (pair["queue_pair"], pair["nic"], pair["remote_queue_pair"]) == ("mlx5_0/77", "mlx5_0", "88")
    assert (pair["gid"], pair["remote_nic"]) == ("::ffff:10.0.0.1", "::ffff:10.0.0.2")
    now = next(row for row in log.rows("wr_samples") if row["locator"] < 0)
    assert (now["posted"], now["completed"], now["in_flight"], now["unacknowledged"]) == (10, 6, 1, 2)
    assert (now["error_status"], now["vendor_error"]) == (12, 129)
    assert now["oldest_ns"] > 0
    assert [(row["first_epoch"] > 0, row["values"]) for row in log.rows("nic_epochs")] == [(True, [3000])]


def test_work_that_nobody_polled_is_unknown(content: bytes) -> None:
    """Without an oldest request the counts say nothing of what is in flight."""
    data = bytearray(content)
    head = np.frombuffer(content, layout.HEAD, 1)[0]
    place = next(int(section["offset"]) for section in head["sections"] if section["kind"] == layout.QUEUE_PAIRS)
    table = np.frombuffer(data, layout.QUEUE_PAIR, 1, place)
    assert table["signaled_posted"] > table["signaled_completed"]
    table["oldest_post"] = 0
    now = next(row for row in read(bytes(data), NAME).rows("wr_samples") if row["locator"] < 0)
    assert (now["in_flight"], now["oldest_ns"], now["posted"]) == (None, None, 10)


def test_coverage_tells_hooked_from_idle(log: Result) -> None:
    status = {row["kind"]: row["status"] for row in log.rows("coverage")}
    assert status == {"nccl_api": "ok", "nccl_profiler": "ok", "verbs": "ok", "shim_log": "ok"}


def test_communicators_and_events(log: Result) -> None:
    (state,) = log.rows("communicator_states")
    assert (state["state"], state["group_rank"], state["size"], state["name"]) == ("ready", 1, 4, "tp")
    assert (state["operations"], state["inside_kind"]) == (4, "broadcast")
    assert [(row["kind"], row["result"]) for row in log.rows("communicator_events")] == [("init_rank", 0)]


def test_nothing_is_wrong_with_the_sample(log: Result) -> None:
    assert log.problems == []


def cuts(content: bytes) -> Iterator[int]:
    yield from (0, 1, 8, 100, 2047, 2048, 3000, 4096, 4097, 9000, len(content) - 1)
    chance = random.Random(7)
    yield from (chance.randrange(len(content)) for _ in range(20))


def test_cut_anywhere(content: bytes) -> None:
    for end in cuts(content):
        found = read(content[:end], NAME)
        assert found.problems, end
        assert found.problems[0].locator == f"byte={end}"
        assert bool(found.rows("coverage")) == (end >= layout.HEAD_BYTES)


def test_another_version_is_left_alone(content: bytes) -> None:
    found = read(sealed(content, major=2), NAME)
    assert [(item.message, item.fatal) for item in found.problems] == [("layout 2 is not known; this reader knows 1", True)]


def test_a_later_minor_version_is_read(content: bytes, log: Result) -> None:
    found = read(sealed(content, minor=9), NAME)
    assert found.rows("operations") == log.rows("operations")


@pytest.mark.parametrize("where", [0, 8, 40, 600, 2000])
def test_an_overwritten_head_is_stated(content: bytes, where: int) -> None:
    found = read(content[:where] + b"\xff\xfe\xfd" + content[where + 3 :], NAME)
    assert found.problems[0].fatal
    assert "head was overwritten" in found.problems[0].message


def test_a_head_that_was_never_written(content: bytes) -> None:
    found = read(bytes(len(content)), "vm.1.4242.1000.tmp")
    assert "never written" in found.problems[0].message


def test_a_log_of_the_other_byte_order(content: bytes, log: Result) -> None:
    """All numbers turned round, as a big-endian host would have written them."""
    found = read(turned(content), NAME)
    assert [item.message for item in found.problems] == []
    for table in ("operations", "chunk_states", "queue_pairs", "wr_samples", "communicator_states", "clocks"):
        assert found.rows(table) == log.rows(table), table


def turned(content: bytes) -> bytes:
    """The file with every field swapped, by the kind of each section and record."""
    data = bytearray(content)
    head = np.frombuffer(content, layout.HEAD, 1)[0]
    sections = head["sections"][: head["section_count"]]
    tables = {1: layout.CLOCK, 2: layout.COMM, 3: layout.PROXY_OP, 4: layout.QUEUE_PAIR, 5: layout.EPOCH_BIN, 6: layout.RING}
    kinds = {
        80: layout.PROXY,
        81: layout.PROXY,
        82: layout.WAITS,
        83: layout.DONE,
        84: layout.QP,
        85: layout.RATE,
        65: layout.QP_EVENT,
    }
    for section in sections:
        begin, count, size = int(section["offset"]), int(section["count"]), int(section["entry_bytes"])
        for place in range(begin, begin + count * size, size):
            if any(data[place : place + size]):
                kind = tables.get(int(section["kind"])) or kinds.get(data[place + 56], layout.CALL)
                swap(data, place, kind)
    swap(data, 2048, layout.LIVE)
    swap(data, 0, layout.HEAD)
    data[32:36] = bytes(4)
    data[32:36] = struct.pack(">I", zlib.crc32(data[: layout.HEAD_BYTES]))
    return bytes(data)


def swap(data: bytearray, place: int, kind: np.dtype[Any]) -> None:
    one = np.frombuffer(bytes(data[place : place + kind.itemsize]), kind)
    data[place : place + kind.itemsize] = one.astype(kind.newbyteorder(">")).tobytes()


def test_damage_anywhere_behind_the_head_never_raises(content: bytes) -> None:
    chance = random.Random(11)
    for _ in range(60):
        damaged = bytearray(content)
        for _ in range(chance.randrange(1, 400)):
            damaged[chance.randrange(layout.HEAD_BYTES, len(content))] = chance.randrange(256)
        assert read(bytes(damaged), NAME).rows("coverage")


def test_a_hostile_directory_takes_no_memory(content: bytes) -> None:
    head = np.frombuffer(content[: layout.HEAD_BYTES], layout.HEAD).copy()
    head["sections"]["count"][0, :7] = 1 << 60
    found = read(sealed(content, sections=head["sections"], file_bytes=1 << 63), NAME)
    assert found.problems


def test_a_process_that_could_not_record_says_why() -> None:
    found = read(b"FRXSHIM-OFF 1 reason=2 errno=28\n", "vm.1.4242.1000.off")
    assert [row["reason"] for row in found.rows("coverage")] == ["no space (errno 28)"]
    assert found.problems[0].message == "the process recorded nothing: no space (errno 28)"
    assert found.identities == []


@pytest.mark.parametrize(("rank", "expected"), [("7", 7), ("x", None)])
def test_a_process_that_could_not_record_says_who_it_was(rank: str, expected: int | None) -> None:
    note = f"FRXSHIM-OFF 1 reason=3 errno=13 of=node-1.cluster.{rank}.4242.1000\n".encode()
    found = read(note, "note")
    assert [(item.rank, item.host) for item in found.identities] == [(expected, "node-1.cluster")]
    assert "the file could not be made (errno 13)" in found.problems[0].message


def test_records_that_were_being_written_are_left_out_and_counted(content: bytes) -> None:
    head = np.frombuffer(content, layout.HEAD, 1)[0]
    records = next(int(section["offset"]) for section in head["sections"] if section["kind"] == layout.RECORDS)
    torn = bytearray(content)
    torn[records + 7] |= 0x80  # the first record of the first ring
    found = read(bytes(torn), NAME)
    assert found.config()["shim.records.calls"] == "written=8 kept=7 overwritten=0 torn=1 dropped=0"
    assert "left out" in found.problems[0].message
