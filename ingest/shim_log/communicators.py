"""What is true of each communicator in a shim log: its slot, and the newer records of calls (docs/formats/shim-log.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from forensics.ingest.interface import Batch
from forensics.ingest.shim_log import layout
from forensics.ingest.shim_log.clock import Clock
from forensics.ingest.shim_log.columns import call_times, labels, numbers, texts, times, words
from forensics.ingest.shim_log.file import ShimFile, Table, text
from forensics.ingest.shim_log.rings import Ring


def current_communicators(log: ShimFile, rings: Sequence[Ring]) -> Table:
    """The slots, each brought up to date by the newest record of a call on it.

    The writer brings them up to date itself every `sample_ms`: what came later, a call that a thread is inside now among it, is
    in the records alone.
    """
    comms = log.tables.get(layout.COMMS)
    if comms is None:
        return np.zeros(0, layout.COMM)
    comms = comms.copy()
    for ring in rings:
        if ring.ring_class == "calls":
            _apply(comms, log.typed(ring.records, layout.CALL), ring.thread)
    return comms


def _apply(comms: Table, calls: Table, thread: int) -> None:
    calls = calls[(calls["kind"] <= max(layout.OPERATIONS)) & (calls["comm"] < len(comms))]
    calls = calls[(comms["generation"][calls["comm"]] & 0xFF) == calls["generation"]]
    # the last record of each slot, since those of a ring stand in the order in which they were written
    slots, from_end = np.unique(calls["comm"][::-1], return_index=True)
    newest = calls[len(calls) - 1 - from_end]
    is_newer = newest["op_number"] >= comms["ops"][slots]
    slots, newest = slots[is_newer], newest[is_newer]
    for name, values in (
        ("ops", newest["op_number"]),
        ("last_enter", newest["enter"]),
        ("last_leave", newest["leave"]),
        ("inside", np.where(newest["leave"] == 0, thread, 0)),
        ("inside_kind", newest["kind"]),
    ):
        comms[name][slots] = values


def communicator_batches(log: ShimFile, clock: Clock, rings: Sequence[Ring]) -> Iterator[Batch]:
    """Rows of `communicator_states`."""
    comms = current_communicators(log, rings)
    used = np.flatnonzero(comms["state"] != 0)
    if not len(used):
        return
    rows, names = comms[used], labels(log)
    inside = rows["inside"] != 0
    yield Batch(
        "communicator_states",
        {
            "locator": numbers(used),
            "communicator": texts([names[slot] for slot in used.tolist()]),
            "parent": texts([f"nccl:{int(parent):016x}" if parent else None for parent in rows["parent"]]),
            "comm_id": texts([f"{int(value):016x}" if value else None for value in rows["comm_id"]]),
            "name": texts([text(value) or None for value in rows["name"]]),
            "state": words(rows["state"], layout.COMM_STATES),
            "group_rank": numbers(rows["rank"], rows["rank"] < 0),
            "size": numbers(rows["ranks"], rows["ranks"] < 0),
            "color": numbers(rows["color"], rows["color"] < 0),
            "device": numbers(rows["device"], rows["device"] < 0),
            "nodes": numbers(rows["nodes"], rows["nodes"] < 0),
            "graph_captured": (rows["flags"] & 4 != 0).tolist(),
            "init_entered_ns": times(clock, rows["init_enter"]),
            "init_returned_ns": times(clock, rows["init_leave"]),
            "closed_ns": times(clock, rows["closed"]),
            "operations": numbers(np.maximum(rows["ops"], rows["profiler_ops"])),
            "finished": numbers(rows["ops_done"], rows["profiler_ops"] == 0),
            "last_entered_ns": times(clock, rows["last_enter"]),
            "last_returned_ns": call_times(clock, rows["last_leave"]),
            "inside_kind": texts([layout.OPERATIONS.get(int(kind)) for kind in np.where(inside, rows["inside_kind"], 0)]),
            "async_error": numbers(rows["async_error"], rows["async_error"] == 0),
        },
    )
