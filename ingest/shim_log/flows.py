"""Proxy operations of a shim log as rows of `flows` and `chunk_states`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from forensics.ingest.interface import Batch
from forensics.ingest.shim_log import layout
from forensics.ingest.shim_log.carriers import DIRECTIONS, carriers
from forensics.ingest.shim_log.clock import TICKS_MONOTONIC, Clock
from forensics.ingest.shim_log.columns import communicators, lengths, numbers, times, words
from forensics.ingest.shim_log.file import ShimFile, Table
from forensics.ingest.shim_log.rings import Ring

_ACTIVE = 1


def flow_batches(log: ShimFile, clock: Clock, rings: Sequence[Ring], whole: Sequence[Ring]) -> Iterator[Batch]:
    """Ended flows, samples of those in progress, and what the state pages say now; `whole` as of calls."""
    messages = _messages(log, whole)
    for ring in rings:
        for kind in (layout.PROXY_STATE, layout.PROXY_DONE):
            first, second, places = pairs(ring, kind, layout.PROXY_WAITS)
            if not len(first):
                continue
            states, waits = log.typed(first, layout.PROXY), log.typed(second, layout.WAITS)
            yield Batch("chunk_states", {"locator": numbers(places), **_chunks(log, clock, states, waits, messages)})
            if kind == layout.PROXY_DONE:
                yield Batch("flows", {"locator": numbers(places), **_flows(log, clock, states, waits)})
    yield from _open_flows(log, clock, last_tick(log, rings), messages)


def _messages(log: ShimFile, rings: Sequence[Ring]) -> Mapping[int, int]:
    """Number of each point-to-point operation with its peer, by communicator, its generation and the profiler's own number.

    NCCL orders the messages of a group among each other, so that the order of the calls does not tell which is which.
    """
    found: dict[int, int] = {}
    for ring in rings:
        done = log.typed(ring.records[ring.records["kind"] == layout.OP_DONE], layout.DONE)
        found |= _numbered(done[done["p2p_number"] > 0], "generation")
    slots = log.tables.get(layout.PROXY_OPS)
    return found if slots is None else found | _numbered(slots[slots["p2p_number"] > 0], "comm_generation")


def _numbered(table: Table, generation: str) -> dict[int, int]:
    return dict(zip(_keys(table, generation).tolist(), table["p2p_number"].tolist(), strict=True))


def _keys(table: Table, generation: str) -> npt.NDArray[np.uint64]:
    """One number for each operation: slot and generation of its communicator, number of the profiler."""
    comm, uses, number = (table[name].astype(np.uint64) for name in ("comm", generation, "op_number"))
    key: npt.NDArray[np.uint64] = comm << np.uint64(40) | uses << np.uint64(32) | number
    return key


def pairs(ring: Ring, first: int, second: int) -> tuple[Table, Table, npt.NDArray[np.int64]]:
    """Records of one kind with their second halves, which are the next ones of the ring; halves alone are left out."""
    kinds = ring.records["kind"]
    whole = np.flatnonzero((kinds[:-1] == first) & (kinds[1:] == second) & (np.diff(ring.numbers) == 1))
    return ring.records[whole], ring.records[whole + 1], ring.places[whole]


def _chunks(log: ShimFile, clock: Clock, states: Table, waits: Table, messages: Mapping[int, int]) -> dict[str, Any]:
    is_recv = states["direction"] == 1
    distinct, inverse = np.unique(_keys(states, "generation"), return_inverse=True)
    pair_numbers = np.array([messages.get(key, 0) for key in distinct.tolist()], np.int64)[inverse]
    return {
        "time_ns": times(clock, states["time"]),
        "communicator": communicators(log, states),
        "sequence": numbers(states["op_number"], states["op_number"] == 0),
        "channel": numbers(states["channel"]),
        "peer": numbers(states["peer"], states["peer"] < 0),
        "direction": words(states["direction"], DIRECTIONS),
        "pair_number": numbers(pair_numbers, pair_numbers == 0),
        "total": numbers(states["total"]),
        "posted": numbers(states["posted"]),
        "gpu_ready": numbers(states["ready"], is_recv),
        "transmitted": numbers(states["passed"], is_recv),
        "done": numbers(states["done"], is_recv),
        "received": numbers(states["ready"], ~is_recv),
        "flushed": numbers(states["passed"], ~is_recv),
        "consumed": numbers(states["done"], ~is_recv),
        **_waits(clock, waits["wait"], is_recv),
        "stuck_ns": lengths(clock, waits["stuck"]),
    }


def _waits(clock: Clock, wait: npt.NDArray[Any], is_recv: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """Waits of the sender and of the receiver; the other side's are null."""
    names = ("wait_gpu_ns", "wait_credit_ns", "wait_nic_ns", "wait_wire_ns", "wait_flush_ns", "wait_consume_ns")
    values, unknown = clock.length(wait.astype(np.float64))
    missing = {True: is_recv | unknown.any(), False: ~is_recv | unknown.any()}
    return {name: numbers(np.ascontiguousarray(values[:, each]), missing[each < 3]) for each, name in enumerate(names)}


def _flows(log: ShimFile, clock: Clock, states: Table, waits: Table) -> dict[str, Any]:
    return {
        "communicator": communicators(log, states),
        "sequence": numbers(states["op_number"], states["op_number"] == 0),
        "channel": numbers(states["channel"]),
        "peer": numbers(states["peer"], states["peer"] < 0),
        "direction": words(states["direction"], DIRECTIONS),
        "bytes": numbers(states["bytes"]),
        "start_ns": times(clock, waits["start"]),
        "end_ns": times(clock, states["time"]),
        **carriers(log, states),
    }


def _open_flows(log: ShimFile, clock: Clock, now: int, messages: Mapping[int, int]) -> Iterator[Batch]:
    """Proxy operations in progress when the log was written last, by their state pages."""
    slots = log.tables.get(layout.PROXY_OPS)
    active = np.flatnonzero(slots["state"] == _ACTIVE) if slots is not None else np.zeros(0, np.int64)
    if slots is None or not len(active):
        return
    ops = slots[active]
    records, waits = np.zeros(len(ops), layout.PROXY), np.zeros(len(ops), layout.WAITS)
    is_recv = ops["direction"] == 1
    for name in ("op_number", "peer", "channel", "direction", "total", "posted", "bytes", "comm"):
        records[name] = ops[name]
    records["generation"] = ops["comm_generation"]
    for name, sent, got in (
        ("ready", "gpu_ready", "received"),
        ("passed", "transmitted", "flushed"),
        ("done", "done", "consumed"),
    ):
        records[name] = np.where(is_recv, ops[got], ops[sent])
    newest = np.maximum(ops["last_change"], ops["start"])
    records["time"] = np.maximum(newest, np.uint64(now))
    waits["start"] = ops["start"]
    waits["wait"] = _lasting(ops, records["time"])
    waits["stuck"] = records["time"] - newest
    locators = numbers(-1 - active)
    yield Batch("chunk_states", {"locator": locators, **_chunks(log, clock, records, waits, messages)})
    columns = _flows(log, clock, records, waits)
    columns["end_ns"] = numbers(np.zeros(len(ops), np.int64), np.ones(len(ops), np.bool_))
    yield Batch("flows", {"locator": locators, **columns})


def _lasting(ops: Table, now: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Finished waits, and those of live steps up to now."""
    waits = ops["wait"].astype(np.float64)
    steps = ops["steps"]
    since = np.where(steps["since"] > 0, np.maximum(now[:, None].astype(np.float64) - steps["since"], 0), 0)
    for wait in range(waits.shape[1]):
        waits[:, wait] += np.where(steps["state"] == wait + 1, since, 0).sum(axis=1)
    return waits


def last_tick(log: ShimFile, rings: Sequence[Ring]) -> int:
    """The newest moment at which the process was surely alive: its last heartbeat, or its last record."""
    last = log.live["last_clock"]
    beat = int(last["monotonic_ns"] if int(log.head["ticks"]) == TICKS_MONOTONIC else last["counter"])
    records = [int(ring.records["time"][-1]) for ring in rings if len(ring.records)]
    return max([beat if int(log.live["beat_version"]) % 2 == 0 else 0, *records])
