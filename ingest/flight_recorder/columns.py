"""Entries of a Flight Recorder dump as columns of `operations`: one pass for each key, no object for each event."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import orjson

from forensics.ingest._shared.frames import MAX_DEPTH, CallPath, FrameTable, call_path, read_frame
from forensics.ingest._shared.packed import Packed
from forensics.ingest._shared.values import integer, text
from forensics.ingest.flight_recorder.entries import Coded, Codes, Entries, Flags, Numbers, combined

Columns = dict[str, Packed]
Shape = tuple[tuple[int, ...], ...]
Group = tuple[int | None, str | None, str | None]
"""Number in the process, name and description of an entry's process group."""

_NAME = re.compile(r"(?:(?P<backend>\w+):)?(?P<kind>\S+)(?:\s+(?P<own>\d{1,9})(?:->|<-)(?P<peer>\d{1,9}))?")
_POINT_TO_POINT = frozenset({"send", "recv", "recvAnySource", "recv_any_source", "isend", "irecv"})
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


def operation_columns(entries: Entries, groups: Coded[Group], frames: FrameTable) -> Columns:
    """All columns that the entries have something for; `groups` are those of `process_groups`, call paths go to `frames`."""
    names = entries.coded("profiling_name", parsed_name)
    kinds = names.mapped(lambda name: name[1])
    started, ended = _times(entries, "time_discovered_started_ns"), _times(entries, "time_discovered_completed_ns")
    is_p2p = _is_point_to_point(entries, kinds)
    sequence = _sequence(entries, is_p2p)
    pg_id = groups.mapped(lambda group: group[0])
    states = _states(entries, names.mapped(lambda name: name[0]), started, ended)
    calls, in_batch = _batches(kinds, pg_id, is_p2p, sequence)
    return {
        "backend": names.mapped(lambda name: name[0]).texts(),
        "kind": kinds.texts(),
        "peer": names.mapped(lambda name: name[3]).numbers().packed(),
        "pg_id": pg_id.numbers().packed(),
        "pg_name": groups.mapped(lambda group: group[1]).texts(),
        "op_id": entries.integers("op_id").packed(),
        "record_id": entries.integers("record_id", "id").packed(),
        "retired": entries.flags("retired").packed(),
        "call_path": entries.coded("frames", _stack).mapped(frames.add).numbers().packed(),
        "thread": _threads(entries),
        "enqueued_ns": _created(entries).packed(),
        "device_start_ns": started.packed(),
        "device_end_ns": ended.packed(),
        "duration_ns": _nanoseconds(entries, "duration_ms"),
        "timeout_ns": _nanoseconds(entries, "timeout_ms"),
        "is_p2p": is_p2p.packed(),
        "sequence": sequence.packed(),
        **_sizes(entries),
        "group_call": sequence.where(in_batch).packed(),
        "state": _of_batches(states, kinds, calls, in_batch).texts(),
    }


def process_groups(entries: Entries) -> Coded[Group]:
    """The process group of each entry; its name is in every schema, with the description in a tuple or a list."""
    pairs = combined(entries.integers("pg_id").coded(), entries.coded("process_group", _group_name))
    return pairs.mapped(lambda pair: (pair[0], *pair[1]))


def _group_name(pair: Any) -> tuple[str | None, str | None]:
    if isinstance(pair, (tuple, list)) and len(pair) == 2 and type(pair[0]) is str and type(pair[1]) is str:
        return pair[0], pair[1]
    return None, None


def _times(entries: Entries, key: str) -> Numbers:
    """Times where 0 and None both mean that the event was not seen."""
    times = entries.integers(key)
    return times.where(times.data > 0)


def _created(entries: Entries) -> Numbers:
    """Creation times; the earliest schemas wrote microseconds."""
    if entries.has("time_created_ns"):
        return _times(entries, "time_created_ns")
    micros = _times(entries, "time_created_us")
    micros = micros.where(micros.data < (1 << 63) // 1000)
    return Numbers(np.where(micros.known, micros.data, 0) * 1000, micros.known)


def _nanoseconds(entries: Entries, key: str) -> Packed:
    """Milliseconds, whole or fractional, as nanoseconds."""
    millis = entries.reals(key)
    millis = millis.where(np.abs(millis.data) < _LONGEST_MS)
    nanos = np.rint(np.where(millis.known, millis.data, 0.0) * _NANOSECONDS_PER_MS).astype(np.int64)
    return Numbers(nanos, millis.known).packed()


def parsed_name(name: str) -> tuple[str | None, str, int | None, int | None]:
    """Backend, kind, own number in the group and the peer's, from `<backend>:<op>[ own->peer | own<-peer]`."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None, name, None, None
    own, peer = (int(match[end]) if match[end] else None for end in ("own", "peer"))
    return match["backend"], match["kind"], own, peer


def _is_point_to_point(entries: Entries, kinds: Coded[str]) -> Numbers:
    """What the entry says, else what its kind says."""
    flags = entries.flags("is_p2p")
    by_kind = np.array([kind in _POINT_TO_POINT for kind in kinds.values], dtype=np.bool_)[kinds.codes]
    return Numbers(np.where(flags.known, flags.data.astype(np.bool_), by_kind), np.ones(entries.count, dtype=np.bool_))


def _sequence(entries: Entries, is_p2p: Numbers) -> Numbers:
    """The sequence number that counts for the operation: that of its kind, collective or point to point."""
    collective = entries.integers("collective_seq_id", "seq_id")
    if not is_p2p.data.any():
        return collective
    own = entries.integers("p2p_seq_id", "seq_id")
    data = np.where(is_p2p.data, own.data, collective.data)
    return Numbers(data, np.where(is_p2p.data, own.known, collective.known))


def _batches(kinds: Coded[str], pg_id: Coded[int | None], is_p2p: Numbers, sequence: Numbers) -> tuple[Codes, Flags]:
    """Which group call each entry is of, and whether it shares it: coalesced operations have one sequence number."""
    if not any("coalesced" in kind for kind in kinds.values):
        return kinds.codes, np.zeros(len(kinds.codes), dtype=np.bool_)
    calls = combined(pg_id, is_p2p.coded(), sequence.coded()).codes
    return calls, np.bincount(calls)[calls] > 1


def _of_batches(states: Coded[str], kinds: Coded[str], calls: Codes, in_batch: Flags) -> Coded[str]:
    """The members of a batch stay `scheduled` for ever in the recorder: they are where the entry that closes the batch is."""
    closing = in_batch & np.array(["coalesced" in kind for kind in kinds.values], dtype=np.bool_)[kinds.codes]
    if not closing.any():
        return states
    state_of_call = np.full(int(calls.max()) + 1, -1)
    state_of_call[calls[closing]] = states.codes[closing]
    closed = state_of_call[calls]
    return Coded(np.where(in_batch & (closed >= 0), closed, states.codes), states.values)


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


def _state(value: Any) -> str | None:
    return value if type(value) is str else None


def _states(entries: Entries, backends: Coded[str | None], started: Numbers, ended: Numbers) -> Coded[str]:
    """pending, started or done.

    A backend without any event in the whole dump, as gloo, never leaves `scheduled`: its `retired` says done (or failed).
    """
    retired = entries.flags("retired")
    seen = combined(
        backends,
        entries.coded("state", _state),
        Coded(started.known.astype(np.int64), (False, True)),
        Coded(ended.known.astype(np.int64), (False, True)),
        Coded((retired.data.astype(np.bool_) & retired.known).astype(np.int64), (False, True)),
    )
    events = ("started", "completed")
    with_events = {backend for backend, state, start, end, _ in seen.values if start or end or state in events}
    states = []
    for backend, state, _, end, is_retired in seen.values:
        is_done = state == "completed" or end or (is_retired and backend not in with_events)
        states.append("done" if is_done else "started" if state == "started" else "pending")
    return Coded(seen.codes, states)
