"""Collectives of a Kineto trace: what the host called, what ran on the device, and which belong together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson

from forensics.ingest import _trace_columns as trace
from forensics.ingest._collective_kernels import kind_of_kernel, moves_data
from forensics.ingest._trace_columns import Integers, TraceColumns
from forensics.ingest._trace_head import TraceHead
from forensics.ingest._values import integer, rank_number, text
from forensics.ingest.interface import Batch

COLLECTIVE = re.compile(r"^(gloo|nccl|ucc|mpi|hccl|xccl):(\w+)")
_WAIT = b'"wait"'  # the host waits for one that was called before
_KINDS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "_allgather_base": "all_gather_base",
    "_all_gather_base": "all_gather_base", "alltoall": "all_to_all", "alltoall_base": "all_to_all_base",
    "all_to_allv": "all_to_all", "_reduce_scatter_base": "reduce_scatter_base",
}  # fmt: skip


def is_collective_kernel(columns: TraceColumns, rows: Integers) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which kernels move data between ranks: by their name, or because they describe a collective."""
    names = np.array([moves_data(name) for name in columns.name_texts], dtype=bool)
    return (names[columns.names[rows]] if len(names) else np.zeros(0, dtype=bool)) | (columns.details[rows] >= 0)


def collective_batches(columns: TraceColumns, head: TraceHead) -> Iterator[Batch]:
    """Operations of the device where there are any, else of the host; those of which only a name is known as spans."""
    kernels = columns.rows(trace.KERNEL)
    kernels = kernels[is_collective_kernel(columns, kernels)]
    calls = columns.rows(trace.CALL)
    calls = calls[columns.details[calls] >= 0]
    calls = np.array([row for row in calls.tolist() if _WAIT not in columns.detail_texts[columns.details[row]]], dtype=np.int64)
    if len(kernels):
        yield Batch("operations", _of_device(columns, kernels, head))
    elif len(calls):
        yield Batch("operations", _of_host(columns, calls, head))
    else:
        yield from _named(columns, head)


def _named(columns: TraceColumns, head: TraceHead) -> Iterator[Batch]:
    rows = _annotated(columns)
    if not len(rows):
        return
    begins = columns.begins[rows] + head.base_ns
    yield Batch("spans", {
        "name": columns.named(rows),
        "category": ["collective"] * len(rows),
        "track": [columns.track_texts[code] for code in columns.tracks[rows].tolist()],
        "begin_ns": begins.tolist(),
        "end_ns": (begins + columns.durations[rows]).tolist(),
    })  # fmt: skip


def _annotated(columns: TraceColumns) -> Integers:
    """Annotations that a process group makes around its calls."""
    rows = columns.rows(trace.ANNOTATION)
    is_call = [COLLECTIVE.match(name) is not None for name in columns.named(rows)]
    found: Integers = rows[np.array(is_call, dtype=bool)]
    return found


def _of_host(columns: TraceColumns, rows: Integers, head: TraceHead) -> dict[str, list[Any]]:
    rows = rows[np.argsort(columns.begins[rows], kind="stable")]
    begins = columns.begins[rows] + head.base_ns
    found = _described(columns, rows, [None] * len(rows), head)
    return {**found, "entered_ns": begins.tolist(), "returned_ns": (begins + columns.durations[rows]).tolist()}


def _of_device(columns: TraceColumns, rows: Integers, head: TraceHead) -> dict[str, list[Any]]:
    rows = rows[np.argsort(columns.begins[rows], kind="stable")]
    begins = columns.begins[rows] + head.base_ns
    marks = _enclosing(columns, rows)
    known = marks >= 0
    entered = np.where(known, columns.begins[marks] + head.base_ns, 0).tolist()
    returned = np.where(known, columns.begins[marks] + columns.durations[marks] + head.base_ns, 0).tolist()
    names = [name if is_known else None for name, is_known in zip(columns.named(marks), known.tolist(), strict=True)]
    return {
        **_described(columns, rows, names, head),
        "entered_ns": [at if is_known else None for at, is_known in zip(entered, known.tolist(), strict=True)],
        "returned_ns": [at if is_known else None for at, is_known in zip(returned, known.tolist(), strict=True)],
        "device_start_ns": begins.tolist(),
        "device_end_ns": (begins + columns.durations[rows]).tolist(),
        "duration_ns": columns.durations[rows].tolist(),
        "stream": [_stream(columns.track_texts[code]) for code in columns.tracks[rows].tolist()],
    }


def _enclosing(columns: TraceColumns, kernels: Integers) -> Integers:
    """The annotation of a process group in which the host launched each kernel; -1 where there is none."""
    launched = launches(columns, kernels)
    marks = _annotated(columns)
    nothing = np.full(len(kernels), -1, dtype=np.int64)
    if not len(marks):
        return nothing
    marks = marks[np.lexsort((columns.begins[marks], columns.tracks[marks]))]
    found = nothing
    for track in np.unique(columns.tracks[marks]).tolist():
        own = marks[columns.tracks[marks] == track]
        mine = np.flatnonzero((launched >= 0) & (columns.tracks[np.maximum(launched, 0)] == track))
        at = columns.begins[launched[mine]]
        place = np.searchsorted(columns.begins[own], at, side="right") - 1
        inside = (place >= 0) & (at < (columns.begins[own] + columns.durations[own])[np.maximum(place, 0)])
        found[mine[inside]] = own[place[inside]]
    return found


def launches(columns: TraceColumns, rows: Integers) -> Integers:
    """Place of the runtime call that launched each piece of device work, by their correlation; -1 where there is none."""
    calls = columns.rows(trace.LAUNCH)
    calls = calls[columns.correlations[calls] >= 0]
    calls = calls[np.argsort(columns.correlations[calls], kind="stable")]
    if not len(calls):
        return np.full(len(rows), -1, dtype=np.int64)
    wanted = columns.correlations[rows]
    place = np.minimum(np.searchsorted(columns.correlations[calls], wanted), len(calls) - 1)
    found: Integers = np.where((columns.correlations[calls[place]] == wanted) & (wanted >= 0), calls[place], -1)
    return found


def _described(columns: TraceColumns, rows: Integers, names: list[str | None], head: TraceHead) -> dict[str, list[Any]]:
    """What the calls were: from the arguments of the event, the annotation around its launch, or the kernel's name."""
    details = [_detail(columns.detail_texts[code]) if code >= 0 else {} for code in columns.details[rows].tolist()]
    kernels = columns.named(rows)
    kinds = [_kind(args, name, kernel) for args, name, kernel in zip(details, names, kernels, strict=True)]
    return {
        "locator": list(range(len(rows))),
        "kind": kinds,
        "pg_name": [text(args.get("Process Group Name")) for args in details],
        "backend": [_backend(name, head) for name in names],
        "sequence": [integer(args.get("Seq")) for args in details],
        "count": [integer(args.get("In msg nelems")) for args in details],
        "dtype": [text(args.get("dtype")) for args in details],
        "is_p2p": [kind in ("send", "recv") for kind in kinds],
        "peer": [rank_number(args.get("Dst Rank" if kind == "send" else "Src Rank")) if kind in ("send", "recv") else None
                 for args, kind in zip(details, kinds, strict=True)],
        "state": ["done"] * len(rows),
    }  # fmt: skip


def _detail(raw: bytes) -> dict[str, Any]:
    try:
        args = orjson.loads(raw).get("args")
    except (orjson.JSONDecodeError, AttributeError):
        return {}
    return args if isinstance(args, dict) else {}


def _kind(args: dict[str, Any], name: str | None, kernel: str) -> str:
    told = text(args.get("Collective name"))
    if told is None and name is not None and (match := COLLECTIVE.match(name)):
        told = match[2]
    return _KINDS.get(told, told) if told else kind_of_kernel(kernel)


def _backend(name: str | None, head: TraceHead) -> str:
    match = COLLECTIVE.match(name) if name else None
    return match[1] if match else head.backend or "nccl"


def _stream(track: str) -> int | None:
    """The stream of a device event: its thread id, "7" or "stream 7"."""
    return integer(track.rpartition("/")[2].removeprefix("stream "))
