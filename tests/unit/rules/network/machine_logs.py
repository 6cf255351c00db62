"""Logs of the collector for a collective of proxy_machine.py, in the layout of docs/formats/shim-log.md."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np

from forensics.fixtures.simulator.writers.shim_frame import Ring, Table, frame, joined, rings, started
from forensics.ingest.shim_log import layout
from tests.unit.rules.network.proxy_machine import Link, Machine

_BEGUN, _STOPPED, _COPIED = 1_000_000_000_000, 1_060_000_000_000, 1_090_000_000_000
_REAL = 1_790_000_000_000_000_000
_OPERATION = 3
_FREE = 4


def write(machine: Machine, folder: Path, kind: str, without: Collection[int] = (), lacking: Collection[str] = ()) -> Path:
    """A file for each member, as somebody copied them half a minute after nothing moved any more; `without` left none.

    `lacking` is what no log has: rings by their class (calls, flows, samples), or the queue pairs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for member in range(machine.members):
        if member not in without:
            (folder / f"host{member // machine.per_host}.{member}.{4000 + member}.1.frx").write_bytes(
                _log(machine, member, kind, lacking)
            )
    return folder


def _log(machine: Machine, member: int, kind: str, lacking: Collection[str]) -> bytes:
    number = {name: code for code, name in layout.OPERATIONS.items()}[kind]
    mine = [way for way in machine.ways if way.crosses and member in (way.sender, way.receiver) and way.total]
    pairs = _pairs(machine, member, [] if "pairs" in lacking else mine)
    pages = [
        _page(way, member, number, 0 if "pairs" in lacking else slot + 1)
        for slot, way in enumerate(mine)
        if _is_open(way, member)
    ]
    found = [
        Ring("calls", 100, "main", started(100, _BEGUN, _calls(number)), 8),
        Ring("flows", 101, "proxy", started(101, _BEGUN, _ended(machine, member, mine, number)), 256),
        Ring("samples", 102, "beat", started(102, _BEGUN, _samples(mine, member)), 1024),
    ]
    # Of a ring that nothing was written to, the record by which its thread took it is left.
    kept = [ring if ring.ring_class not in lacking else replace(ring, records=ring.records[:1]) for ring in found]
    directory, records = rings(kept)
    clocks = np.concatenate([_clock(_BEGUN), _clock(_COPIED)])
    sections = {
        layout.CLOCKS: clocks, layout.COMMS: _comm(machine, member), layout.PROXY_OPS: joined(pages, layout.PROXY_OP, _FREE),
        layout.QUEUE_PAIRS: joined([pairs], layout.QUEUE_PAIR, _FREE),
        layout.EPOCHS: np.zeros(0, layout.EPOCH_BIN), layout.RINGS: directory, layout.RECORDS: records,
    }  # fmt: skip
    head = {
        "pid": 4000 + member, "process_start": 1, "created_ns": _REAL, "created": _BEGUN, "ticks": 3, "architecture": 1,
        "epoch_shift": 20, "epoch_bins": 0, "rank": member, "local_rank": member % machine.per_host,
        "world_size": machine.members, "sample_ms": 100, "host": f"host{member // machine.per_host}".encode(),
        "boot_id": f"boot{member // machine.per_host}".encode(), "rank_variable": b"RANK", "job": b"j",
    }  # fmt: skip
    live = {
        "state": 1, "beats": 900, "last_clock": clocks[-1], "clocks": 2, "hooked": (0xFFFF, (1 << 32) | 0x7C00FF),
        "called": (0xFFFF, (1 << 32) | (0x7C005F if len(pairs) else 0x5F)), "threads": 3, "nccl_version": 22703,
        "profiler_version": 4,
        "profiler_mask": 0x1E, "verbs_contexts": 1,
    }  # fmt: skip
    return frame(head, live, sections)


def _clock(monotonic: int) -> Table:
    found = np.zeros(1, layout.CLOCK)
    found["monotonic_ns"] = found["boottime_ns"] = monotonic
    found["realtime_ns"], found["bound_ns"], found["attempts"], found["layout"] = _REAL + monotonic - _BEGUN, 100, 1, 1
    return found


def _comm(machine: Machine, member: int) -> Table:
    found = np.zeros(1 + _FREE, layout.COMM)
    entry = found[0]
    entry["state"], entry["generation"], entry["identity"], entry["comm_id"] = 2, 1, 0xABCDEF, 0x1234
    entry["rank"], entry["ranks"], entry["nodes"] = member, machine.members, machine.members // machine.per_host
    entry["color"], entry["device"] = -1, member % machine.per_host
    entry["init_enter"], entry["init_leave"] = _BEGUN, _BEGUN + 1
    entry["ops"] = entry["profiler_ops"] = _OPERATION
    entry["ops_done"] = _OPERATION - 1
    return found


def _calls(number: int) -> Table:
    found = np.zeros(_OPERATION, layout.CALL)
    found["enter"] = _STOPPED - 1_000_000_000 * np.arange(_OPERATION, 0, -1)
    found["leave"], found["count"], found["op_number"] = found["enter"] + 10_000, 1 << 20, np.arange(1, _OPERATION + 1)
    found["peer"], found["dtype"], found["redop"], found["kind"], found["generation"] = -1, 7, 0, number, 1
    return found


def _is_open(way: Link, member: int) -> bool:
    begun = way.posted if way.sender == member else way.offered
    return bool(begun) and (way.send_is_open if way.sender == member else way.receive_is_open)


def _counts(way: Link, member: int) -> tuple[int, int, int, int]:
    if way.sender == member:
        return way.posted, way.ready, way.passed, way.done
    return way.offered, way.arrived, way.arrived, way.consumed


def _page(way: Link, member: int, number: int, pair: int) -> Table:
    entry = np.zeros(1, layout.PROXY_OP)
    sends = way.sender == member
    names = ("posted", "gpu_ready", "transmitted", "done") if sends else ("posted", "received", "flushed", "consumed")
    for name, value in zip(names, _counts(way, member), strict=True):
        entry[name] = value
    entry["state"], entry["generation"], entry["comm_generation"], entry["channel"] = 1, 1, 1, way.channel
    entry["direction"], entry["peer"], entry["pid"] = int(not sends), way.receiver if sends else way.sender, 4000 + member
    entry["parent"], entry["op_number"], entry["total"], entry["operation"] = 7, _OPERATION, way.total, number
    entry["start"], entry["last_change"], entry["waiting"] = _STOPPED - 1_000_000, _STOPPED, 0xFFFFFFFF
    entry["chunk_bytes"], entry["pairs"] = 1 << 19, (pair, 0, 0, 0)
    return entry


def _samples(mine: list[Link], member: int) -> Table:
    """Three looks at each open end, with the counts that it has at last."""
    found = [
        _records(way, member, layout.PROXY_STATE, _STOPPED + look * 1_000_000_000, look * 1_000_000_000)
        for look in (1, 2, 4) for way in mine if _is_open(way, member)
    ]  # fmt: skip
    return np.concatenate(found) if found else np.zeros(0, layout.RECORD)


def _records(way: Link, member: int, kind: int, time: int, stuck: int) -> Table:
    state, wait = np.zeros(1, layout.PROXY), np.zeros(1, layout.WAITS)
    state["posted"], state["ready"], state["passed"], state["done"] = _counts(way, member)
    state["op_number"], state["peer"] = _OPERATION, way.receiver if way.sender == member else way.sender
    state["total"], wait["start"], wait["stuck"] = way.total, _STOPPED - 1_000_000, stuck
    for each, code in ((state, kind), (wait, layout.PROXY_WAITS)):
        each["time"], each["kind"], each["generation"] = time, code, 1
        each["channel"], each["direction"] = way.channel, int(way.sender != member)
    return np.concatenate([state.view(layout.RECORD), wait.view(layout.RECORD)])


def _ended(machine: Machine, member: int, mine: list[Link], number: int) -> Table:
    """The operations before this one were through, and of this one the ends that are."""
    found = [
        _records(way, member, layout.PROXY_DONE, _STOPPED, 0)
        for way in mine if not (way.send_is_open if way.sender == member else way.receive_is_open)
    ]  # fmt: skip
    done = np.zeros(_OPERATION - 1 + (not any(_is_open(way, member) for way in mine) and bool(found)), layout.DONE)
    numbers = np.arange(1, len(done) + 1)
    done["op_number"], done["end"] = numbers, _STOPPED - 1_000_000_000 * (_OPERATION - numbers) + 500_000_000
    done["start"], done["parent"], done["peer"], done["operation"] = done["end"] - 1_000_000, 7, -1, number
    done["algorithm"], done["protocol"], done["channels"], done["kind"], done["generation"] = 1, 2, 1, layout.OP_DONE, 1
    return np.concatenate([*found, done.view(layout.RECORD)])


def _pairs(machine: Machine, member: int, mine: list[Link]) -> Table:
    """A queue pair for each end: that of a sender carries the steps, that of a receiver the credits for them."""
    table = np.zeros(len(mine), layout.QUEUE_PAIR)
    for slot, (entry, way) in enumerate(zip(table, mine, strict=True)):
        sends = way.sender == member
        other = way.receiver if sends else way.sender
        far = [each for each in machine.ways if each.crosses and other in (each.sender, each.receiver) and each.total]
        entry["state"], entry["generation"], entry["context"], entry["number"] = 1, 1, 1, 100 + slot
        entry["remote_number"], entry["device"] = 100 + far.index(way), f"mlx5_{member % machine.per_host}".encode()
        entry["port"], entry["timeout"], entry["retry_count"], entry["link"] = 1, 20, 7, 2
        for name, rank in (("gid", member), ("remote_gid", other)):
            entry[name] = np.frombuffer(bytes(10) + b"\xff\xff\x0a\0" + bytes((rank // 256, rank % 256)), np.uint8)
        entry["created"], entry["connected"], entry["last_post"] = _BEGUN, _BEGUN + 1, _STOPPED
        entry["flow_peer"], entry["flow_channel"], entry["flow_direction"] = other, way.channel, int(not sends)
        entry["flow_generation"], entry["flows"] = 1, 1
        if sends:
            entry["posted_wrs"] = entry["signaled_posted"] = 1000 + way.passed
            entry["completed_wrs"] = entry["signaled_completed"] = 1000 + way.done
            entry["oldest_post"] = _STOPPED if way.passed > way.done else 0
            entry["last_completion"] = _STOPPED
    return table
