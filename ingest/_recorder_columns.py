"""Entries of a Flight Recorder dump as columns of `operations`: one pass for each key, no object for each event."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import orjson

from forensics.ingest._frames import MAX_DEPTH, FrameTable, read_frame
from forensics.ingest._values import boolean, integer, positive, text

Entries = Sequence[dict[str, Any]]
Columns = dict[str, Sequence[Any]]
Shape = tuple[tuple[int, ...], ...]

_NAME = re.compile(r"(?:(?P<backend>\w+):)?(?P<kind>\S+)(?:\s+(?P<own>\d{1,9})(?:->|<-)(?P<peer>\d{1,9}))?")
_POINT_TO_POINT = frozenset({"send", "recv", "recvAnySource", "recv_any_source", "isend", "irecv"})
_NANOSECONDS_PER_MS = 1_000_000
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


def operation_columns(entries: Entries, frames: FrameTable) -> Columns:
    """All columns that the entries have something for; call paths go to `frames`."""
    names = _parsed_names([entry["profiling_name"] for entry in entries])
    columns: Columns = {
        **names,
        "pg_id": _integers(entries, "pg_id"),
        "pg_name": [group[0] for group in process_groups(entries)],
        "op_id": _integers(entries, "op_id"),
        "record_id": _integers(entries, "record_id", "id"),
        "retired": _cleaned(_values(entries, "retired"), {bool}, boolean),
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


def process_groups(entries: Entries) -> list[tuple[str | None, str | None]]:
    """(name, description) of each entry's process group; a pair in every schema, a tuple or a list."""
    groups: list[tuple[str | None, str | None]] = []
    for group in _values(entries, "process_group"):
        if isinstance(group, (tuple, list)) and len(group) == 2 and type(group[0]) is str and type(group[1]) is str:
            groups.append((group[0], group[1]))
        else:
            groups.append((None, None))
    return groups


def group_names(entries: Entries) -> set[tuple[int | None, str | None, str | None]]:
    """The distinct (pg_id, name, description) of the entries."""
    numbers = _integers(entries, "pg_id")
    return {(number, *group) for number, group in zip(numbers, process_groups(entries), strict=True)}


def _values(entries: Entries, *keys: str) -> list[Any]:
    """The value of the first key that is there, None where there is none."""
    try:
        return list(map(itemgetter(keys[0]), entries))
    except KeyError:
        if len(keys) > 1 and not any(keys[0] in entry for entry in entries):
            return _values(entries, *keys[1:])
        return [entry.get(keys[0]) for entry in entries]


def _cleaned(values: list[Any], sound: set[type], clean: Callable[[Any], Any]) -> list[Any]:
    """The values as they are when all have a sound type, else cleaned one by one."""
    return values if set(map(type, values)) <= sound else [clean(value) for value in values]


def _integers(entries: Entries, *keys: str) -> list[int | None]:
    values = _cleaned(_values(entries, *keys), {int}, integer)
    return _in_range(values)


def _in_range(values: list[int | None]) -> list[int | None]:
    """Integers beyond 64 bits, which only a damaged dump has, become None."""
    present = [value for value in values if value is not None]
    if not present or (min(present) >= -(1 << 63) and max(present) < 1 << 63):
        return values
    return [integer(value) for value in values]


def _times(entries: Entries, key: str) -> list[int | None]:
    """Times where 0 and None both mean that the event was not seen."""
    values = _cleaned(_values(entries, key), {int, type(None)}, positive)
    return _in_range([value if value and value > 0 else None for value in values])


def _created(entries: Entries) -> list[int | None]:
    """Creation times; the earliest schemas wrote microseconds."""
    if any("time_created_ns" in entry for entry in entries):
        return _times(entries, "time_created_ns")
    return _in_range([value * 1000 if value else None for value in _times(entries, "time_created_us")])


def _nanoseconds(entries: Entries, key: str) -> list[int | None]:
    """Milliseconds, whole or fractional, as nanoseconds."""
    values = _values(entries, key)
    known: dict[Any, int | None] = {}
    for value in set(values) if set(map(type, values)) <= {int, float, type(None)} else ():
        is_sane = value is not None and abs(value) < 1e12
        known[value] = round(value * _NANOSECONDS_PER_MS) if is_sane else None
    return [known.get(value) for value in values] if known else [None] * len(values)


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
    flags = _cleaned(_values(entries, "is_p2p"), {bool}, boolean)
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
    shapes = _shapes(_values(entries, "input_sizes"))
    dtypes = [_dtypes(value) for value in _values(entries, "input_dtypes")]
    known = {pair: _size(*pair) for pair in set(zip(shapes, dtypes, strict=True))}
    rows = [known[pair] for pair in zip(shapes, dtypes, strict=True)]
    texts, names, counts, sizes = zip(*rows, strict=True)
    out = _shapes(_values(entries, "output_sizes"))
    out_texts = {shape: _shape_text(shape) for shape in set(out)}
    outputs = [out_texts[shape] for shape in out]
    return {"input_sizes": texts, "dtype": names, "count": counts, "bytes": sizes, "output_sizes": outputs}


def _shapes(values: list[Any]) -> list[Shape | None]:
    """Each sizes list as tuples; equal ones are one object, so that memory follows the number of distinct shapes."""
    known: dict[Shape | None, Shape | None] = {}
    return [known.setdefault(shape, shape) for shape in map(_shape, values)]


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


def _threads(entries: Entries) -> list[str | None]:
    """`name (id)` of the thread that made the call, as far as it is recorded."""
    names = _cleaned(_values(entries, "thread_name"), {str}, text)
    numbers = _cleaned(_values(entries, "thread_id"), {str}, text)
    known: dict[tuple[str | None, str | None], str | None] = {}
    for name, number in set(zip(names, numbers, strict=True)):
        known[name, number] = f"{name or 'thread'} ({number})" if number else name
    return [known[pair] for pair in zip(names, numbers, strict=True)]


def _call_paths(entries: Entries, frames: FrameTable) -> list[int | None]:
    """Call path numbers. Dumps share one object for each distinct frame, so object identities find equal paths fast."""
    known: dict[tuple[int, ...], int | None] = {}
    paths: list[int | None] = []
    for stack in _values(entries, "frames"):
        if type(stack) is not list:
            paths.append(None)
            continue
        key = tuple(map(id, stack[:MAX_DEPTH]))
        if key not in known:
            known[key] = frames.call_path([read_frame(frame) for frame in stack])
        paths.append(known[key])
    return paths


def _states(entries: Entries, columns: Columns) -> list[str]:
    """pending, started or done.

    A backend without any event in the whole dump, as gloo, never leaves `scheduled`: its `retired` says done (or failed).
    """
    states = [state if type(state) is str else None for state in _values(entries, "state")]
    rows = zip(columns["backend"], states, columns["device_start_ns"], columns["device_end_ns"], strict=True)
    with_events = {backend for backend, state, start, end in rows if start or end or state in ("started", "completed")}
    result = []
    for backend, state, retired, end in zip(
        columns["backend"], states, columns["retired"], columns["device_end_ns"], strict=True
    ):
        if state == "completed" or end or (retired and backend not in with_events):
            result.append("done")
        else:
            result.append("started" if state == "started" else "pending")
    return result
