"""Collectives of a Kineto trace: what the host called, what ran on the device, and which belong together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import orjson

from forensics.ingest._shared.collective_kernels import kind_of_kernel, moves_data
from forensics.ingest._shared.device_work import holding, partners
from forensics.ingest._shared.values import integer, rank_number, text
from forensics.ingest.interface import Batch
from forensics.ingest.kineto import columns as trace
from forensics.ingest.kineto.columns import Integers, TraceColumns
from forensics.ingest.kineto.head import TraceHead

COLLECTIVE = re.compile(r"^(gloo|nccl|ucc|mpi|hccl|xccl):(\w+)")
_COMMUNICATES = re.compile(
    r"ccl|shmem|symm|cross_device|all_?(?:reduce|gather|to_?all)|reduce_?scatter|broadcast|send|recv", re.I
)
_LONGEST_NAME, _SHOWN_NAMES = 80, 4
_WAIT = b'"wait"'  # the host waits for one that was called before
_KINDS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "_allgather_base": "all_gather_base",
    "_all_gather_base": "all_gather_base", "alltoall": "all_to_all", "alltoall_base": "all_to_all_base",
    "all_to_allv": "all_to_all", "_reduce_scatter_base": "reduce_scatter_base",
}  # fmt: skip


class OnDevice(NamedTuple):
    """Rows of device work, the host's launch of each (-1 where it is not known), and which move data between ranks."""

    rows: Integers
    launches: Integers
    is_collective: np.ndarray[Any, np.dtype[np.bool_]]

    def chosen(self, which: Any) -> OnDevice:
        """Some of them."""
        return OnDevice(*(column[which] for column in self))


def on_device(columns: TraceColumns) -> OnDevice:
    """Kernels and copies. A collective has the name of one, or describes one."""
    rows = columns.rows(trace.KERNEL, trace.COPY)
    names = np.array([moves_data(name) for name in columns.name_texts], dtype=bool)
    named = names[columns.names[rows]] if len(names) else np.zeros(0, dtype=bool)
    calls = columns.rows(trace.LAUNCH)
    calls = calls[columns.correlations[calls] >= 0]
    place = partners(columns.correlations[rows], columns.correlations[calls])
    launches = calls[np.maximum(place, 0)] if len(calls) else place
    launches = np.where(place >= 0, launches, -1)
    known = named | (columns.details[rows] >= 0)
    # Kernels of a library of another name are those that a process group launches.
    return OnDevice(rows, launches, known if known.any() else _enclosing(columns, launches) >= 0)


def unknown_kernels(columns: TraceColumns, work: OnDevice) -> list[str]:
    """The kernels that took longest, those first that sound like communication; for a trace in which none is known to be."""
    kernels = work.rows[columns.kinds[work.rows] == trace.KERNEL]
    times = np.bincount(columns.names[kernels], columns.durations[kernels], len(columns.name_texts))
    longest = sorted(np.flatnonzero(times).tolist(), key=lambda code: -times[code])
    names = [columns.name_texts[code][:_LONGEST_NAME] for code in longest]
    return sorted(names, key=lambda name: _COMMUNICATES.search(name) is None)[:_SHOWN_NAMES]


def collective_batches(columns: TraceColumns, work: OnDevice, head: TraceHead) -> Iterator[Batch]:
    """Operations of the device where there are any, else of the host; those of which only a name is known as spans."""
    kernels = work.chosen(work.is_collective & (columns.kinds[work.rows] == trace.KERNEL))
    calls = columns.rows(trace.CALL)
    calls = calls[columns.details[calls] >= 0]
    calls = np.array([row for row in calls.tolist() if _WAIT not in columns.detail_texts[columns.details[row]]], dtype=np.int64)
    if len(kernels.rows):
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


def _of_device(columns: TraceColumns, work: OnDevice, head: TraceHead) -> dict[str, list[Any]]:
    rows, launches, _ = work.chosen(np.argsort(columns.begins[work.rows], kind="stable"))
    begins = columns.begins[rows] + head.base_ns
    marks = _enclosing(columns, launches)
    known = marks >= 0
    entered = np.where(known, columns.begins[marks] + head.base_ns, 0).tolist()
    returned = np.where(known, columns.begins[marks] + columns.durations[marks] + head.base_ns, 0).tolist()
    names = [name if is_known else None for name, is_known in zip(columns.named(marks), known.tolist(), strict=True)]
    streams = [_stream(text) for text in columns.track_texts]
    return {
        **_described(columns, rows, names, head),
        "entered_ns": [at if is_known else None for at, is_known in zip(entered, known.tolist(), strict=True)],
        "returned_ns": [at if is_known else None for at, is_known in zip(returned, known.tolist(), strict=True)],
        "device_start_ns": begins.tolist(),
        "device_end_ns": (begins + columns.durations[rows]).tolist(),
        "duration_ns": columns.durations[rows].tolist(),
        "stream": [streams[code] for code in columns.tracks[rows].tolist()],
    }


def _enclosing(columns: TraceColumns, launches: Integers) -> Integers:
    """The annotation of a process group in which the host made each launch; -1 where there is none."""
    marks = _annotated(columns)
    found = np.full(len(launches), -1, dtype=np.int64)
    marks = marks[np.lexsort((columns.begins[marks], columns.tracks[marks]))]
    for track in np.unique(columns.tracks[marks]).tolist():
        own = marks[columns.tracks[marks] == track]
        mine = np.flatnonzero((launches >= 0) & (columns.tracks[launches] == track))
        begins = columns.begins[own]
        place = holding(columns.begins[launches[mine]], begins, begins + columns.durations[own])
        found[mine] = np.where(place >= 0, own[place], -1)
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
    stated = text(args.get("Collective name"))
    if stated is None and name is not None and (match := COLLECTIVE.match(name)):
        stated = match[2]
    return _KINDS.get(stated, stated) if stated else kind_of_kernel(kernel)


def _backend(name: str | None, head: TraceHead) -> str:
    match = COLLECTIVE.match(name) if name else None
    return match[1] if match else head.backend or "nccl"


def _stream(track: str) -> int | None:
    """The stream of a device event: its thread id, "7" or "stream 7"."""
    return integer(track.rpartition("/")[2].removeprefix("stream "))
