"""A log written from the tables of docs/formats/shim-log.md alone is read back: the page is enough for another writer."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.unit.ingest.reading import Result, read

PAGES = Path(__file__).parents[3] / "docs/formats"
PAGE = (PAGES / "shim-log.md").read_text()
CLOCK_PAGE = (PAGES / "clock-reading.md").read_text()
FORMATS = {"uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q", "int32": "i", "int64": "q", "float32": "f"}
Values = Mapping[str, object]


def part(title: str) -> str:
    """What stands below a heading, up to the next one."""
    return PAGE.split(f"# {title}\n")[1].split("\n#")[0]


def codes(title: str, header: str) -> dict[str, int]:
    """Numbers by their names from the table whose first column has this header."""
    body = re.split(rf"^\| {header} \|", part(title), flags=re.MULTILINE)[1].split("\n\n")[0]
    return {name.strip(): int(number) for number, name in re.findall(r"^\| (\d+) \| ([^|:]+)", body, re.MULTILINE)}


def kinds() -> dict[str, int]:
    rows = re.findall(r"^\| (\d+ .+?) \| ", part("Kinds of record"), re.MULTILINE)
    return {name: int(number) for row in rows for number, name in re.findall(r"(\d+) ([a-z_]+)", row)}


def written(text: str, values: Values, size: int) -> bytes:
    """A structure of the table in a text: each value by its field's name, what is not given 0."""
    page, left = bytearray(size), dict(values)
    for offset, wide, kind, name in re.findall(r"^\| (\d+) \| (\d+) \| ([\w\[\]]+) \| (\w+) \|", text, re.MULTILINE):
        if name in left:
            content = encoded(kind, left.pop(name))
            assert len(content) <= int(wide), name
            page[int(offset) : int(offset) + len(content)] = content
    assert not left, f"the page has no {sorted(left)}"
    return bytes(page)


def encoded(kind: str, value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    base, _, many = kind.partition("[")
    items = value if isinstance(value, Sequence) else [value]
    assert many or len(items) == 1
    return struct.pack(f"<{len(items)}{FORMATS[base]}", *items)


def clock(ns: int) -> bytes:
    given = {"realtime_ns": 10**18 + ns, "monotonic_ns": ns, "boottime_ns": ns, "bound_ns": 80, "attempts": 1, "layout": 1}
    return written(CLOCK_PAGE, given, 48)


def record(title: str, number: int, **values: object) -> bytes:
    """Record `number` (from 0) of a ring."""
    return written(part(title), {"sequence": number + 1, "check": number + 1, **values}, 64)


def calls() -> list[bytes]:
    """An all_reduce, and a send in a group."""
    kind, dtype = kinds(), codes("Values in records", "dtype")
    none = {"peer": -1, "dtype": 255, "redop": 255, "comm": 0xFFFF}
    own = {"comm": 0, "generation": 1, "dtype": dtype["bfloat16"], "redop": 255, "result": 0}
    return [
        record("Call", 0, kind=kind["thread"], enter=4000, count=77, **none),
        record("Call", 1, kind=kind["all_reduce"], enter=5000, leave=1, count=64, op_number=1, **{**own, "peer": -1}),
        record("Call", 2, kind=kind["group_start"], enter=6000, leave=1, result=0, **none),
        record("Call", 3, kind=kind["send"], enter=6100, leave=1, op_number=2, p2p_number=1, count=8, peer=1, depth=1, **own),
        record("Call", 4, kind=kind["group_end"], enter=6200, leave=6300, depth=1, result=0, **none),
    ]


def flows() -> list[bytes]:
    """The proxy operation of the all_reduce ended, and then the operation."""
    kind, at = kinds(), {"comm": 0, "generation": 1}
    ended = {"channel": 2, "direction": 0, **at}
    return [
        record("Call", 0, kind=kind["thread"], enter=4000, count=78, peer=-1, dtype=255, redop=255, comm=0xFFFF),
        record("Proxy", 1, kind=kind["proxy_done"], time=5900, op_number=1, peer=1, total=4, posted=4, ready=4, passed=4,
               done=4, bytes=128, **ended),
        record("Waits", 2, kind=kind["proxy_waits"], time=5900, start=5100, wait=waits(gpu=10, credit=20, nic=30), **ended),
        record("Done", 3, kind=kind["op_done"], start=5100, end=5900, bytes=128, op_number=1, peer=-1,
               operation=kind["all_reduce"], algorithm=codes("Values in records", "algorithm")["ring"], protocol=2,
               channels=1, **at),
    ]  # fmt: skip


def waits(**lengths: int) -> list[int]:
    place = codes("Waits", "wait")
    found = [0] * len(place)
    for name, length in lengths.items():
        found[place[name]] = length
    return found


def sections() -> dict[str, tuple[int, list[bytes]]]:
    """Size of an entry and the entries of each section, by its name."""
    ready, active = codes("Communicators", "state")["ready"], codes("Proxy operations", "state")["active"]
    comm = {"state": ready, "generation": 1, "identity": 0xAB, "rank": 0, "ranks": 2, "ops": 2, "device": 0, "name": b"pp"}
    step = struct.pack("<IIQQ", 1 + codes("Waits", "wait")["credit"], 2, 6900, 16)
    flow = {
        "state": active, "generation": 1, "comm": 0, "comm_generation": 1, "channel": 3, "direction": 0, "peer": 1, "pid": 5,
        "op_number": 2, "p2p_number": 1, "operation": kinds()["send"], "total": 8, "posted": 3, "gpu_ready": 3,
        "transmitted": 2, "done": 2, "start": 6400, "last_change": 6900,
        "waiting": codes("Waits", "wait")["credit"], "pairs": [1], "steps": bytes(48) + step,
    }  # fmt: skip
    pair = {
        "state": active, "generation": 1, "number": 9, "remote_number": 10, "device": b"mlx5_0", "port": 1, "link": 2,
        "gid": bytes(10) + b"\xff\xff\x0a\0\0\1", "remote_gid": bytes(10) + b"\xff\xff\x0a\0\0\2", "posted_wrs": 4,
        "completed_wrs": 4, "signaled_posted": 4, "signaled_completed": 4, "flow_comm": 0, "flow_generation": 1, "flow_peer": 1,
        "flow_channel": 3, "flow_direction": 0, "flows": 1,
    }  # fmt: skip
    classes = codes("Rings", "class")
    rings = [
        {"ring_class": classes["calls"], "thread": 77, "first": 0, "records": 8, "head": 5, "owned": 1},
        {"ring_class": classes["flows"], "thread": 78, "first": 8, "records": 4, "head": 4, "owned": 1},
    ]
    return {
        "clocks": (48, [clock(4000), clock(7000)]),
        "communicators": (384, [written(part("Communicators"), comm, 384)]),
        "proxy operations": (512, [written(part("Proxy operations"), flow, 512)]),
        "queue pairs": (512, [written(part("Queue pairs"), pair, 512)]),
        "ring directory": (128, [written(part("Rings"), ring, 128) for ring in rings]),
        "records of all rings": (64, [*calls(), *[bytes(64)] * 3, *flows()]),
    }


def log(skip: frozenset[str] = frozenset()) -> bytes:
    """The whole file: head, live page, sections one after the other."""
    kind, body, directory = codes("Section directory", "kind"), b"", b""
    for name, (size, entries) in sections().items():
        if name not in skip:
            directory += struct.pack("<IIQQQ", kind[name], size, 4096 + len(body), len(entries), 0)
            body += b"".join(entries).ljust(-(-len(entries) * size // 64) * 64, b"\0")
    head = {
        "magic": b"FRXSHIM\n", "byte_order": 0x0A0B0C0D, "major": 1, "minor": 2, "head_bytes": 2048, "record_bytes": 64,
        "file_bytes": 4096 + len(body), "section_count": len(directory) // 32, "section_offset": 512, "section_entry_bytes": 32,
        "pid": 5, "ticks": codes("Counters", "value")["CLOCK_MONOTONIC in nanoseconds, where no counter can be used"],
        "epoch_shift": 20, "epoch_bins": 128, "rank": 0, "world_size": 2, "local_rank": 0, "sample_ms": 100,
        "live_offset": 2048, "live_bytes": 2048, "host": b"node-1", "sections": directory,
    }  # fmt: skip
    unsealed = written(part("Head"), head, 2048)
    sealed = written(part("Head"), {**head, "checksum": zlib.crc32(unsealed)}, 2048)
    return sealed + live() + body


def live() -> bytes:
    mask = sum(1 << bit for bit in (1, 2, 3, 4))
    bits = {"hooked": [1 << 1, 0x1F | 1 << 32], "called": [1 << 1 | 1 << 9, 0x1F | 1 << 32]}
    state = codes("Live page", "state")["recording"]
    given = {"state": state, "beats": 30, "last_clock": clock(8000), "clocks": 2, "profiler_version": 4, "profiler_mask": mask}
    return written(part("Live page"), {**given, **bits}, 2048)


@pytest.fixture(scope="module")
def found() -> Result:
    return read(log(), "node-1.0.5.1.frx")


def test_nothing_is_wrong_with_it(found: Result) -> None:
    assert found.problems == []
    assert [(item.rank, item.host) for item in found.identities] == [(0, "node-1")]
    assert {row["kind"]: row["status"] for row in found.rows("coverage")}["nccl_profiler"] == "ok"


def test_its_calls_are_read(found: Result) -> None:
    reduced, sent = found.rows("operations")
    assert (reduced["kind"], reduced["state"], reduced["bytes"], reduced["op_id"]) == ("all_reduce", "done", 128, 1)
    assert (sent["kind"], sent["state"], sent["peer"], sent["pair_number"]) == ("send", "started", 1, 1)
    assert reduced["group_call"] is None and sent["group_call"] == 2
    assert sent["entered_ns"] == 10**18 + 6100


def test_its_flows_meet_their_queue_pair(found: Result) -> None:
    ended, open_ = sorted(found.rows("chunk_states"), key=lambda row: -row["locator"])
    assert (ended["wait_gpu_ns"], ended["wait_credit_ns"], ended["wait_nic_ns"], ended["done"]) == (10, 20, 30, 4)
    assert (open_["gpu_ready"], open_["transmitted"], open_["pair_number"], open_["stuck_ns"]) == (3, 2, 1, 1100)
    assert open_["wait_credit_ns"] == 1100
    named = {row["sequence"]: row["queue_pair"] for row in found.rows("flows")}
    assert named == {1: None, 2: "mlx5_0/9"}, "channel 2 was not seen on any queue pair"
    (pair,) = found.rows("queue_pairs")
    assert (pair["communicator"], pair["channel"], pair["direction"], pair["peer"]) == ("nccl:00000000000000ab", 3, "send", 1)


def test_a_log_without_queue_pairs_is_read_as_well() -> None:
    rows = read(log(frozenset({"queue pairs"})), "node-1.0.5.1.frx").rows("flows")
    assert [row["queue_pair"] for row in rows] == [None, None]
