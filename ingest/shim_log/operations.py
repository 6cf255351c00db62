"""Calls of NCCL functions in a shim log as rows of `operations` and `communicator_events`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from forensics.ingest._shared.nccl_types import DTYPE_BYTES, DTYPES
from forensics.ingest._shared.packed import Packed
from forensics.ingest.interface import Batch
from forensics.ingest.shim_log import layout
from forensics.ingest.shim_log.clock import Clock
from forensics.ingest.shim_log.columns import call_times, communicators, numbers, texts, times, words
from forensics.ingest.shim_log.file import ShimFile, Table
from forensics.ingest.shim_log.rings import Ring, threads

_NONE = 255
_ACTIVE, _ENDED = 1, 2


def call_batches(log: ShimFile, clock: Clock, rings: Sequence[Ring], whole: Sequence[Ring]) -> Iterator[Batch]:
    """Operations of every ring, and what happened to communicators; `whole` are the rings with all that is left of them."""
    finished, moving = _finished(log, whole), _moving(log)
    for ring in rings:
        kinds = ring.records["kind"]
        rows = np.flatnonzero((kinds >= min(layout.OPERATIONS)) & (kinds <= layout.WAIT_SIGNAL))
        if ring.ring_class == "calls" and len(rows):
            yield _operations(log, clock, ring, rows, (finished, moving))
        rows = np.flatnonzero((kinds >= min(layout.EVENTS)) & (kinds <= max(layout.EVENTS)))
        if len(rows):
            yield _events(log, clock, ring, rows)


def _operations(log: ShimFile, clock: Clock, ring: Ring, rows: npt.NDArray[Any], known: Any) -> Batch:
    calls = log.typed(ring.records[rows], layout.CALL)
    kinds = calls["kind"]
    is_p2p = (kinds >= layout.SEND) & (kinds <= layout.WAIT_SIGNAL)
    peers = calls["peer"].astype(np.int64)
    columns: dict[str, Any] = {
        "locator": numbers(ring.places[rows]),
        "communicator": communicators(log, calls),
        "backend": texts(["nccl"] * len(calls)),
        "sequence": numbers(calls["op_number"]),
        "op_id": numbers(calls["op_number"]),
        "pair_number": numbers(calls["p2p_number"], calls["p2p_number"] == 0),
        "group_call": _group_calls(ring, rows, calls),
        "kind": words(kinds, layout.OPERATIONS),
        "is_p2p": Packed(len(calls), is_p2p),
        "peer": numbers(peers, ~is_p2p | (peers < 0)),
        "root": numbers(peers, is_p2p | (peers < 0)),
        "stream": numbers(calls["stream"]),
        "thread": texts(_threads(ring, rows)),
        "entered_ns": times(clock, calls["enter"]),
        "returned_ns": call_times(clock, calls["leave"]),
        "inside": Packed(len(calls), calls["leave"] == 0),
        "state": _states(calls, *known),
        **_sizes(calls),
    }
    columns["pg_name"] = columns["communicator"]
    return Batch("operations", columns)


def _threads(ring: Ring, rows: npt.NDArray[Any]) -> list[str | None]:
    owners = threads(ring)
    return [owners[row] for row in rows.tolist()]


def _sizes(calls: Table) -> dict[str, Packed]:
    """Elements, their type, and bytes where the width of the type is known."""
    dtypes, counts = calls["dtype"], calls["count"]
    widths = np.array([*DTYPE_BYTES, *[0] * (256 - len(DTYPE_BYTES))], np.int64)[dtypes]
    unknown = (widths == 0) | (counts >= np.uint64(1 << 58))
    names: dict[int, Any] = {**dict(enumerate(DTYPES)), _NONE: None}
    safe = np.where(unknown, 0, counts.astype(np.int64) * widths)
    return {"count": numbers(counts), "dtype": words(dtypes, names), "bytes": numbers(safe, unknown)}


def _group_calls(ring: Ring, rows: npt.NDArray[Any], calls: Table) -> Packed:
    """Operations of one group share the place of its start; null outside of groups and where the start is overwritten."""
    starts = np.flatnonzero(ring.records["kind"] == layout.GROUP_START)
    before = np.searchsorted(starts, rows, side="right") - 1
    grouped = ((calls["depth"] & 0x7F) > 0) & (before >= 0)
    places = ring.places[starts[before]] if len(starts) else np.zeros(len(rows), np.int64)
    return numbers(places, ~grouped)


def _key(comm: npt.NDArray[Any], generation: npt.NDArray[Any], number: npt.NDArray[Any], kind: npt.NDArray[Any]) -> Any:
    """One number for an operation of one communicator."""
    parts = comm.astype(np.uint64), generation.astype(np.uint64), kind.astype(np.uint64), number.astype(np.uint64)
    return parts[0] << np.uint64(48) | parts[1] << np.uint64(40) | parts[2] << np.uint64(32) | parts[3]


def _finished(log: ShimFile, rings: Sequence[Ring]) -> Any:
    """Operations that the profiler saw end."""
    keys = []
    for ring in rings:
        done = log.typed(ring.records[ring.records["kind"] == layout.OP_DONE], layout.DONE)
        keys.append(_key(done["comm"], done["generation"], done["op_number"], done["operation"]))
    return np.concatenate(keys) if keys else np.zeros(0, np.uint64)


def _moving(log: ShimFile) -> Any:
    """Operations with a proxy operation in progress."""
    slots = log.tables.get(layout.PROXY_OPS)
    if slots is None:
        return np.zeros(0, np.uint64)
    slots = slots[(slots["state"] == _ACTIVE) & (slots["op_number"] > 0)]
    return _key(slots["comm"], slots["comm_generation"], slots["op_number"], slots["operation"])


def _states(calls: Table, finished: Any, moving: Any) -> Packed:
    """done and started only where the profiler saw it: that a call returned says that the operation was enqueued."""
    keys = _key(calls["comm"], calls["generation"], calls["op_number"], calls["kind"])
    done, started = (np.isin(keys, known) if len(known) else np.zeros(len(keys), np.bool_) for known in (finished, moving))
    return words(np.where(done, np.uint8(2), started.view(np.uint8)), ("pending", "started", "done"))


def _events(log: ShimFile, clock: Clock, ring: Ring, rows: npt.NDArray[Any]) -> Batch:
    calls = log.typed(ring.records[rows], layout.CALL)
    inside = calls["leave"] == 0
    return Batch(
        "communicator_events",
        {
            "locator": numbers(ring.places[rows]),
            "communicator": communicators(log, calls),
            "kind": words(calls["kind"], layout.EVENTS),
            "thread": texts(_threads(ring, rows)),
            "entered_ns": times(clock, calls["enter"]),
            "returned_ns": times(clock, calls["leave"]),
            "result": numbers(calls["result"], inside),
            "error": numbers(calls["count"], calls["kind"] != 44),
        },
    )
