"""What the host of a trace without devices computed: stretches of operators on the thread of the steps, none of which waits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from forensics.ingest._shared.config import config_batches
from forensics.ingest._shared.device_work import Integers
from forensics.ingest._shared.trace_steps import Marks, steps_of
from forensics.ingest.interface import Batch
from forensics.ingest.kineto import columns as trace
from forensics.ingest.kineto.columns import TraceColumns
from forensics.ingest.kineto.head import TraceHead

OPERATORS = "trace.operators"
"""Key of the configuration under which the number of operators stands that the thread of the steps ran."""
_CALLS = "c10d::"
# Between two operators the interpreter works; it does not wait within so short a time.
_CLOSE_NS = 200_000


def host_work(columns: TraceColumns, head: TraceHead, marks: Marks) -> Iterator[Batch]:
    """Spans of category `computation`, of gradients and of other operators; none where the trace has devices, or no steps.

    An operator within which a call of a process group was made may wait in it: only what it consists of counts.
    """
    if not (columns.kinds == trace.OPERATOR).any():
        return
    steps, _ = steps_of(marks)
    thread = steps[0][1].thread if steps else None
    if thread is None or thread not in columns.track_texts:
        return
    rows = columns.rows(trace.OPERATOR, trace.GRADIENT, trace.UPDATE)
    rows = rows[columns.tracks[rows] == columns.track_texts.index(thread)]
    is_call = np.array([name.startswith(_CALLS) for name in columns.name_texts], bool)[columns.names[rows]]
    calls = np.sort(columns.begins[rows[is_call]])
    begins, ends = columns.begins[rows], columns.begins[rows] + columns.durations[rows]
    waits = np.searchsorted(calls, begins) < np.searchsorted(calls, ends)
    yield from config_batches({OPERATORS: str(int((~is_call).sum()))})
    is_gradient = columns.kinds[rows] == trace.GRADIENT
    for name, chosen in (("gradients", is_gradient), ("operators", ~is_gradient)):
        first, last = _stretches(begins[chosen & ~waits], ends[chosen & ~waits])
        yield Batch("spans", {
            "name": [name] * len(first),
            "category": ["computation"] * len(first),
            "track": [thread] * len(first),
            "begin_ns": (first + head.base_ns).tolist(),
            "end_ns": (last + head.base_ns).tolist(),
        })  # fmt: skip


def _stretches(begins: Integers, ends: Integers) -> tuple[Integers, Integers]:
    """Joined where they overlap or are close; begins and ends, in order."""
    order = np.argsort(begins, kind="stable")
    begins = begins[order]
    reached = np.maximum.accumulate(ends[order])
    parts = begins[1:] > reached[:-1] + _CLOSE_NS
    return begins[np.append(True, parts)[: len(begins)]], reached[np.append(parts, True)[: len(begins)]]
