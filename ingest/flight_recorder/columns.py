"""Entries of a Flight Recorder dump as columns of `operations`: one pass for each key, no object for each event."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import orjson

from forensics.ingest._shared.frames import MAX_DEPTH, CallPath, FrameTable, call_path, read_frame
from forensics.ingest._shared.packed import Packed
from forensics.ingest._shared.values import integer, text
from forensics.ingest.flight_recorder.calls import Calls
from forensics.ingest.flight_recorder.entries import Entries, Numbers, combined

Columns = dict[str, Packed]
Shape = tuple[tuple[int, ...], ...]

_NANOSECONDS_PER_MS = 1_000_000
_LONGEST_MS = 1e12
_MAX_TENSORS = 1 << 16
_MAX_DIMENSIONS = 64
_BYTES = {
    **dict.fromkeys(("Byte", "Char", "Bool", "QInt8", "QUInt8", "Float8_e4m3fn", "Float8_e5m2"), 1),
    **dict.fromkeys(("Float8_e4m3fnuz", "Float8_e5m2fnuz", "Float8_e8m0fnu"), 1),
    **dict.fromkeys(("Short", "Half", "BFloat16", "UInt16"), 2),
    **dict.fromkeys(("Int", "Float", "ComplexHalf", "QInt32", "UInt32"), 4),
    **dict.fromkeys(("Long", "Double", "ComplexFloat", "UInt64"), 8),
    "ComplexDouble": 16,
}


def operation_columns(entries: Entries, calls: Calls, frames: FrameTable) -> Columns:
    """All columns that the entries have something for; `calls` are those of the same entries, call paths go to `frames`."""
    return {
        "backend": calls.names.mapped(lambda name: name[0]).texts(),
        "kind": calls.names.mapped(lambda name: name[1]).texts(),
        "peer": calls.names.mapped(lambda name: name[3]).numbers().packed(),
        "pg_id": calls.groups.mapped(lambda group: group[0]).numbers().packed(),
        "pg_name": calls.groups.mapped(lambda group: group[1]).texts(),
        "op_id": entries.integers("op_id").packed(),
        "record_id": entries.integers("record_id", "id").packed(),
        "retired": entries.flags("retired").packed(),
        "call_path": entries.coded("frames", _stack).mapped(frames.add).numbers().packed(),
        "thread": _threads(entries),
        "enqueued_ns": calls.created.packed(),
        "device_start_ns": calls.started.packed(),
        "device_end_ns": calls.ended.packed(),
        "duration_ns": _nanoseconds(entries, "duration_ms"),
        "timeout_ns": _nanoseconds(entries, "timeout_ms"),
        "is_p2p": calls.is_p2p.packed(),
        "sequence": calls.sequence.packed(),
        **_sizes(entries),
        "group_call": calls.sequence.where(calls.in_batch).packed(),
        "state": calls.states.texts(),
    }


def _nanoseconds(entries: Entries, key: str) -> Packed:
    """Milliseconds, whole or fractional, as nanoseconds."""
    millis = entries.reals(key)
    millis = millis.where(np.abs(millis.data) < _LONGEST_MS)
    nanos = np.rint(np.where(millis.known, millis.data, 0.0) * _NANOSECONDS_PER_MS).astype(np.int64)
    return Numbers(nanos, millis.known).packed()


def _sizes(entries: Entries) -> Columns:
    """Shapes as JSON text; elements and bytes of the input."""
    pairs = combined(entries.coded("input_sizes", _shape), entries.coded("input_dtypes", _dtypes))
    rows = pairs.mapped(lambda pair: _size(*pair))
    return {
        "input_sizes": rows.mapped(lambda row: row[0]).texts(),
        "dtype": rows.mapped(lambda row: row[1]).texts(),
        "count": rows.mapped(lambda row: row[2]).numbers().packed(),
        "bytes": rows.mapped(lambda row: row[3]).numbers().packed(),
        "output_sizes": entries.coded("output_sizes", _shape).mapped(_shape_text).texts(),
    }


def _shape(value: Any) -> Shape | None:
    """Sizes as tuples of integers; anything else, such as lists nested to make a reader loop for ever, is None."""
    if type(value) is not list or len(value) > _MAX_TENSORS:
        return None
    for sizes in value:
        if type(sizes) is not list or len(sizes) > _MAX_DIMENSIONS:
            return None
        for size in sizes:
            if type(size) is not int:
                return None
    return tuple([tuple(sizes) for sizes in value])


def _dtypes(value: Any) -> tuple[str, ...] | None:
    """Element types, one for each tensor."""
    if not isinstance(value, (list, tuple)):
        return None
    for name in value:
        if type(name) is not str:
            return None
    return tuple(value)


def _shape_text(shape: Shape | None) -> str | None:
    if shape is None or any(not -(1 << 53) < size < 1 << 53 for size in chain.from_iterable(shape)):
        return None
    return orjson.dumps(shape).decode()


def _size(shape: Shape | None, dtypes: tuple[str, ...] | None) -> tuple[str | None, str | None, int | None, int | None]:
    """Shape as text, element types, elements and bytes; bytes only where every width is known."""
    names = ",".join(dtypes) if dtypes is not None else None
    source = _shape_text(shape)
    if shape is None or source is None:
        return source, names, None, None
    counts = [_product(sizes) for sizes in shape]
    count = sum(counts)
    widths = [_BYTES.get(name) for name in dtypes or ()]
    if len(widths) != len(shape):
        return source, names, integer(count), None
    total = sum(n * width for n, width in zip(counts, widths, strict=True) if width is not None)
    return source, names, integer(count), None if None in widths else integer(total)


def _product(sizes: Sequence[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _threads(entries: Entries) -> Packed:
    """`name (id)` of the thread that made the call, as far as it is recorded."""
    pairs = combined(entries.coded("thread_name", text), entries.coded("thread_id", text))
    return pairs.mapped(lambda pair: f"{pair[0] or 'thread'} ({pair[1]})" if pair[1] else pair[0]).texts()


def _stack(value: Any) -> CallPath | None:
    """The frames of an entry, innermost first."""
    return call_path([read_frame(frame) for frame in value[:MAX_DEPTH]]) if type(value) is list else None
