"""Kineto traces of torch.profiler or made on demand: JSON of any layout, whole or cut (docs/formats/kineto.md).

Established on torch 2.13 and on traces of 2021 to 2026; the writer is pytorch/kineto libkineto/src/output_json.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.config import config_batches
from forensics.ingest._shared.content import from_first_character
from forensics.ingest._shared.device_work import DeviceWork, Intervals
from forensics.ingest._shared.stage_names import problem
from forensics.ingest._shared.trace_steps import OPTIMIZER, Mark, Marks, batches
from forensics.ingest.interface import Batch, Identity, Ingester, Item, Problem
from forensics.ingest.kineto import columns as trace
from forensics.ingest.kineto.calls import COLLECTIVE, OnDevice, collective_batches, on_device, unknown_kernels
from forensics.ingest.kineto.columns import Tally, TraceColumns
from forensics.ingest.kineto.events import read_trace
from forensics.ingest.kineto.head import TraceHead, trace_head
from forensics.ingest.kineto.host_work import host_work

UNRECOGNISED = "trace.unrecognised_kernels"
"""Key of the configuration under which kernels are named that may be communication."""

_OF_WORKER = re.compile(r"(?:^|/)([A-Za-z][\w.-]{0,250})_\d{2,7}\.\d{13,19}\.pt\.trace\.json(?:\.gz)?$")
# What people call a worker by its rank.
_NO_HOSTS = frozenset({"device", "gpu", "host", "node", "proc", "process", "rank", "trainer", "worker"})


def sniff(head: bytes, path: str) -> int:
    """An object with the keys that kineto writes first, or a list of trace events with its categories."""
    start = from_first_character(head)
    if not start.startswith(b"{"):
        return 0
    if start[:64].find(b'"schemaVersion"') >= 0:
        return 98  # a dump of the Flight Recorder has process groups too, but no such key
    if b'"schemaVersion"' in start and any(
        key in start for key in (b'"deviceProperties"', b'"traceEvents"', b'"distributedInfo"', b'"record_shapes"')
    ):
        return 90
    return 60 if b'"traceEvents"' in start and (b'"ph"' in start or len(start) < 200) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """Steps, stages and collectives, and what of the file could not be used."""
    tally = Tally()
    with artefact.open() as stream:
        columns = read_trace(stream, tally)
    head = trace_head(tally.head, tally.tail)
    yield Identity(head.rank, head.host or host_in(artefact.path))
    yield from _complaints(artefact, tally, head)
    yield from config_batches({"world_size": head.world_size})
    if len(head.groups) > 1:  # the default group alone says no more than the size of the world
        views: dict[str, list[Any]] = {
            "pg_name": [g[0] for g in head.groups],
            "description": [g[1] for g in head.groups],
            "members": [g[2] for g in head.groups],
        }
        yield Batch("group_views", views)
    if head.rank is None and artefact.rank is None:
        return
    work = on_device(columns)
    marks = _marks(columns, work, head)
    if unknown := _without_communication(columns, work, marks, head):
        yield Problem(f"no communication was recognised among the kernels of this rank of several, e.g. {', '.join(unknown)}")
        yield from config_batches({UNRECOGNISED: unknown})
    yield from batches(marks)
    yield from host_work(columns, head, marks)
    yield from collective_batches(columns, work, head)


def host_in(path: str) -> str | None:
    """The host in the name that torch.profiler.tensorboard_trace_handler gives a file: HOST_PID.NANOSECONDS.pt.trace.json."""
    found = _OF_WORKER.search(path)
    return found[1] if found is not None and found[1].lower() not in _NO_HOSTS else None


def _complaints(artefact: Artefact, tally: Tally, head: TraceHead) -> Iterator[Problem]:
    if stated := problem():
        yield Problem(stated)
    if tally.problem:
        yield Problem(f"{tally.problem}; what came before was used", f"byte={tally.read}")
    elif not tally.has_end:
        yield Problem("the trace is cut; what came before was used", f"byte={tally.read}")
    if tally.broken:
        yield Problem(f"{tally.broken} events are no valid JSON and were left out", f"byte={tally.first_broken}")
    if head.rank is None and artefact.rank is None:
        yield Problem("no rank is known: neither its content nor its path says one; its steps are not used")
    elif head.rank is None and artefact.rank is not None and not artefact.has_stated_rank:
        yield Problem(f"rank {artefact.rank} is a guess from a number in its name")


def _without_communication(columns: TraceColumns, work: OnDevice, marks: Marks, head: TraceHead) -> list[str]:
    """Names of kernels where a rank of several ran some, and none is known to be a collective: one of them may be."""
    alone = (head.world_size or 0) < 2 and not any(len(members) > 1 for _, _, members in head.groups)
    calls = columns.rows(trace.CALL)
    if alone or marks.collectives or work.is_collective.any() or (columns.details[calls] >= 0).any():
        return []
    return unknown_kernels(columns, work)


def _marks(columns: TraceColumns, work: OnDevice, head: TraceHead) -> Marks:
    """Intervals in nanoseconds of the realtime clock."""
    rows = columns.rows(trace.ANNOTATION)
    begins = columns.begins[rows] + head.base_ns
    ends, tracks, links = begins + columns.durations[rows], columns.tracks[rows].tolist(), columns.externals[rows].tolist()
    launches = np.sort(columns.begins[columns.rows(trace.LAUNCH)]) + head.base_ns
    marks = Marks([], _gradients(columns, head), [], _annotated_devices(columns), _work(columns, work, head), launches)
    for begin, end, name, track, link in zip(begins.tolist(), ends.tolist(), columns.named(rows), tracks, links, strict=True):
        target = marks.collectives if COLLECTIVE.match(name) else marks.annotations
        target.append(Mark(begin, end, name, columns.track_texts[track], link if link >= 0 else None))
    if not any(mark.name.startswith(OPTIMIZER) for mark in marks.annotations):
        marks.annotations += _updates(columns, marks.gradients, head)
    return marks


def _updates(columns: TraceColumns, gradients: Intervals, head: TraceHead) -> Iterator[Mark]:
    """Updates of an optimizer that is not annotated: its operators on one thread without a gradient in between."""
    rows = columns.rows(trace.UPDATE)
    rows = rows[np.argsort(columns.begins[rows], kind="stable")]
    begins = columns.begins[rows] + head.base_ns
    ends = begins + columns.durations[rows]
    passes = np.searchsorted(gradients.begins, begins)
    for number in np.unique(passes).tolist():
        mine = np.flatnonzero(passes == number)
        track = columns.track_texts[int(columns.tracks[rows[mine[0]]])]
        yield Mark(int(begins[mine[0]]), int(ends[mine].max()), f"{OPTIMIZER}operators", track)


def _annotated_devices(columns: TraceColumns) -> dict[int, int]:
    rows = columns.rows(trace.DEVICE_ANNOTATION)
    rows = rows[columns.externals[rows] >= 0]
    return dict(zip(columns.externals[rows].tolist(), columns.durations[rows].tolist(), strict=True))


def _gradients(columns: TraceColumns, head: TraceHead) -> Intervals:
    rows = columns.rows(trace.GRADIENT)
    begins = columns.begins[rows] + head.base_ns
    return Intervals.of(begins, begins + columns.durations[rows])


def _work(columns: TraceColumns, work: OnDevice, head: TraceHead) -> DeviceWork | None:
    """Kernels and copies whose launch is known, without collectives; None when there are none."""
    rows, launches, _ = work.chosen(~work.is_collective & (work.launches >= 0))
    if not len(rows):
        return None
    begins = columns.begins[rows] + head.base_ns
    return DeviceWork(columns.begins[launches] + head.base_ns, begins, begins + columns.durations[rows])


INGESTER = Ingester("kineto", "kineto", sniff, rows, most=98)
