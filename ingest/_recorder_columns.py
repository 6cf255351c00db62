"""Entries of a Flight Recorder dump as columns of `operations`: one pass for each key, no object for each event."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import orjson

from forensics.ingest._frames import MAX_DEPTH, Frame, FrameTable, read_frame
from forensics.ingest._recorder_entries import Entries
from forensics.ingest._values import boolean, integer, positive, text

Columns = dict[str, Sequence[Any]]
Shape = tuple[tuple[int, ...], ...]
Group = tuple[int | None, str | None, str | None]
"""Number in the process, name and description of an entry's process group."""

_NAME = re.compile(r"(?:(?P<backend>\w+):)?(?P<kind>\S+)(?:\s+(?P<own>\d{1,9})(?:->|<-)(?P<peer>\d{1,9}))?")
_POINT_TO_POINT = frozenset({"send", "recv", "recvAnySource", "recv_any_source", "isend", "irecv"})
_NANOSECONDS_PER_MS = 1_000_000
_MAX_TENSORS = 1 << 16
_MAX_DIMENSIONS = 64
_INT64 = range(-(1 << 63), 1 << 63)
_BYTES = {
    **dict.fromkeys(("Byte", "Char", "Bool", "QInt8", "QUInt8", "Float8_e4m3fn", "Float8_e5m2"), 1),
    **dict.fromkeys(("Float8_e4m3fnuz", "Float8_e5m2fnuz", "Float8_e8m0fnu"), 1),
    **dict.fromkeys(("Short", "Half", "BFloat16", "UInt16"), 2),
    **dict.fromkeys(("Int", "Float", "ComplexHalf", "QInt32", "UInt32"), 4),
    **dict.fromkeys(("Long", "Double", "ComplexFloat", "UInt64"), 8),
    "ComplexDouble": 16,
}


def operation_columns(entries: Entries, groups: Sequence[Group], frames: FrameTable) -> Columns:
    """All columns that the entries have something for; `groups` are those of `process_groups`, call paths go to `frames`."""
    names = _parsed_names(entries.values("profiling_name"))
    columns: Columns = {
        **names,
        "pg_id": [number for number, _, _ in groups],
        "pg_name": [name for _, name, _ in groups],
        "op_id": _integers(entries, "op_id"),
        "record_id": _integers(entries, "record_id", "id"),
        "retired": _cleaned(entries.values("retired"), {bool}, boolean),
        "call_path": _call_paths(entries, frames),
        "thread": _threads(entries),
        "enqueued_ns": _created(entries),
        "device_start_ns": _times(entries, "time_discovered_started_ns"),
        "device_end_ns": _times(entries, "time_discovered_completed_ns"),
        "duration_ns": _nanoseconds(entries, "duration_ms"),
        "timeout_ns": _nanoseconds(entries, "timeout_ms"),
    }
    columns |= _sequences(entries, columns["kind"])
    columns |= _sizes(entries)
    columns["group_call"] = _group_calls(columns)
    columns["state"] = _states(entries, columns)
    return columns


def process_groups(entries: Entries) -> list[Group]:
    """The process group of each entry; its name is in every schema, with the description in a tuple or a list."""
    pairs = entries.values("process_group")
    numbers = _integers(entries, "pg_id")
    if set(map(type, pairs)) == {tuple}:
        with suppress(TypeError):  # a tuple of what cannot be hashed: read one by one
            named = {pair: _group_name(pair) for pair in set(pairs)}
            return [(number, *named[pair]) for number, pair in zip(numbers, pairs, strict=True)]
    return [(number, *_group_name(pair)) for number, pair in zip(numbers, pairs, strict=True)]


def _group_name(pair: Any) -> tuple[str | None, str | None]:
    if isinstance(pair, (tuple, list)) and len(pair) == 2 and type(pair[0]) is str and type(pair[1]) is str:
        return pair[0], pair[1]
    return None, None


def _cleaned(values: list[Any], sound: set[type], clean: Callable[[Any], Any]) -> list[Any]:
    """The values as they are when all have a sound type, else cleaned one by one."""
    return values if set(map(type, values)) <= sound else [clean(value) for value in values]


def _integers(entries: Entries, *keys: str) -> list[int | None]:
    values = entries.values(*keys)
    if set(map(type, values)) == {int} and _INT64.start <= min(values) and max(values) < _INT64.stop:
        return values
    return [integer(value) for value in values]


def _times(entries: Entries, key: str) -> list[int | None]:
    """Times where 0 and None both mean that the event was not seen."""
    values = entries.values(key)
    kinds = set(map(type, values))
    if (kinds == {int} and min(values) > 0 and max(values) < _INT64.stop) or kinds == {type(None)}:
        return values
    if kinds <= {int, type(None)}:
        return [value if value and 0 < value < _INT64.stop else None for value in values]
    return [positive(value) for value in values]


def _created(entries: Entries) -> list[int | None]:
    """Creation times; the earliest schemas wrote microseconds."""
    if "time_created_ns" in entries:
        return _times(entries, "time_created_ns")
    return [integer(value * 1000) if value else None for value in _times(entries, "time_created_us")]


def _nanoseconds(entries: Entries, key: str) -> list[int | None]:
    """Milliseconds, whole or fractional, as nanoseconds."""
    values = entries.values(key)
    known: dict[Any, int | None] = {}
    for value in set(values) if set(map(type, values)) <= {int, float, type(None)} else ():
        is_sane = value is not None and abs(value) < 1e12
        known[value] = round(value * _NANOSECONDS_PER_MS) if is_sane else None
    return list(map(known.get, values)) if known else [None] * len(values)


def _parsed_names(names: list[str]) -> Columns:
    """Backend, kind and group-local peer from `<backend>:<op>[ own->peer | own<-peer]`."""
    parsed: dict[str, tuple[str | None, str, int | None]] = {}
    for name in set(names):
        match = _NAME.fullmatch(name)
        peer = match["peer"] if match else None
        parsed[name] = (match["backend"], match["kind"], int(peer) if peer else None) if match else (None, name, None)
    backends, kinds, peers = zip(*map(parsed.__getitem__, names), strict=True)
    return {"backend": backends, "kind": kinds, "peer": peers}


def _sequences(entries: Entries, kinds: Sequence[str]) -> Columns:
    """The sequence number that counts for the operation: that of its kind, collective or point to point."""
    flags = _cleaned(entries.values("is_p2p"), {bool}, boolean)
    is_p2p = [kind in _POINT_TO_POINT if flag is None else flag for flag, kind in zip(flags, kinds, strict=True)]
    collective = _integers(entries, "collective_seq_id", "seq_id")
    if not any(is_p2p):
        return {"is_p2p": is_p2p, "sequence": collective}
    own = _integers(entries, "p2p_seq_id", "seq_id")
    sequence = [p2p if flag else other for flag, p2p, other in zip(is_p2p, own, collective, strict=True)]
    return {"is_p2p": is_p2p, "sequence": sequence}


def _group_calls(columns: Columns) -> list[int | None]:
    """Coalesced operations share a sequence number: it is their group call. Null where nothing was coalesced."""
    if not any("coalesced" in kind for kind in set(columns["kind"])):
        return [None] * len(columns["kind"])
    keys = list(zip(columns["pg_id"], columns["is_p2p"], columns["sequence"], strict=True))
    counts = Counter(keys)
    return [key[2] if counts[key] > 1 else None for key in keys]


def _sizes(entries: Entries) -> Columns:
    """Shapes as JSON text; elements and bytes of the input."""
    shapes = _shapes(entries.values("input_sizes"))
    dtypes = _all_dtypes(entries.values("input_dtypes"))
    known = {pair: _size(*pair) for pair in set(zip(shapes, dtypes, strict=True))}
    rows = [known[pair] for pair in zip(shapes, dtypes, strict=True)]
    texts, names, counts, sizes = zip(*rows, strict=True)
    out = _shapes(entries.values("output_sizes"))
    out_texts = {shape: _shape_text(shape) for shape in set(out)}
    outputs = [out_texts[shape] for shape in out]
    return {"input_sizes": texts, "dtype": names, "count": counts, "bytes": sizes, "output_sizes": outputs}


def _shapes(values: list[Any]) -> list[Shape | None]:
    """Each sizes list as tuples; equal ones are one object, so that memory follows the number of distinct shapes."""
    inner = _only_items(values, list)
    if inner is not None and max(map(len, inner)) <= _MAX_DIMENSIONS and set(map(type, chain.from_iterable(inner))) <= {int}:
        keys = list(map(tuple, inner))
        single: dict[tuple[int, ...], Shape] = {key: (key,) for key in set(keys)}
        return list(map(single.__getitem__, keys))
    known: dict[Shape | None, Shape | None] = {}
    return [known.setdefault(shape, shape) for shape in map(_shape, values)]


def _only_items(values: list[Any], kind: type) -> list[Any] | None:
    """The item of each value when all are lists of one item of this type, as nearly every call has one tensor."""
    if set(map(type, values)) != {list} or set(map(len, values)) != {1}:
        return None
    items = list(chain.from_iterable(values))
    return items if set(map(type, items)) == {kind} else None


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


def _all_dtypes(values: list[Any]) -> list[tuple[str, ...] | None]:
    """Element types of each entry."""
    names = _only_items(values, str)
    if names is None:
        return list(map(_dtypes, values))
    single: dict[str, tuple[str, ...]] = {name: (name,) for name in set(names)}
    return list(map(single.__getitem__, names))


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


def _threads(entries: Entries) -> list[str | None]:
    """`name (id)` of the thread that made the call, as far as it is recorded."""
    names = _cleaned(entries.values("thread_name"), {str}, text)
    numbers = _cleaned(entries.values("thread_id"), {str}, text)
    known: dict[tuple[str | None, str | None], str | None] = {}
    for name, number in set(zip(names, numbers, strict=True)):
        known[name, number] = f"{name or 'thread'} ({number})" if number else name
    return [known[pair] for pair in zip(names, numbers, strict=True)]


def _call_paths(entries: Entries, frames: FrameTable) -> list[int | None]:
    """Call path numbers. Dumps share one object for each distinct frame, so object identities find equal paths fast."""
    known: dict[tuple[int, ...], int | None] = {}
    read: dict[int, Frame | None] = {}
    paths: list[int | None] = []
    for stack in entries.values("frames"):
        if type(stack) is not list:
            paths.append(None)
            continue
        key = tuple(map(id, stack if len(stack) <= MAX_DEPTH else stack[:MAX_DEPTH]))
        if key not in known:
            for number, frame in zip(key, stack, strict=False):
                if number not in read:
                    read[number] = read_frame(frame)
            known[key] = frames.call_path([read[number] for number in key])
        paths.append(known[key])
    return paths


def _states(entries: Entries, columns: Columns) -> list[str]:
    """pending, started or done.

    A backend without any event in the whole dump, as gloo, never leaves `scheduled`: its `retired` says done (or failed).
    """
    states = [state if type(state) is str else None for state in entries.values("state")]
    started, ended = ([time is not None for time in columns[name]] for name in ("device_start_ns", "device_end_ns"))
    looks = list(zip(columns["backend"], states, started, ended, columns["retired"], strict=True))
    distinct = set(looks)
    events = ("started", "completed")
    with_events = {backend for backend, state, start, end, _ in distinct if start or end or state in events}
    known = {}
    for backend, state, start, end, retired in distinct:
        is_done = state == "completed" or end or (retired and backend not in with_events)
        known[backend, state, start, end, retired] = "done" if is_done else "started" if state == "started" else "pending"
    return list(map(known.__getitem__, looks))
