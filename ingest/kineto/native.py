"""Trace files through the native reader (native/trace): columns straight from the bytes, no Python object for each event."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from forensics.ingest.kineto.columns import Tally, TraceColumns
from forensics.native import library_path

_LAYOUT = 3
_MOST_MEMORY = 1 << 30
_LONGEST_REST = 32 << 20
_TYPES = (np.uint8, np.int32, np.int32, np.int64, np.int64, np.int64, np.int64, np.int32)
_NAME_BYTES, _TRACK_BYTES, _DETAIL_BYTES = 8, 10, 12
_FULL = "its events take more memory than a trace may"
_POINTER = ctypes.c_void_p


class _Tallied(ctypes.Structure):
    _fields_ = (("kept", ctypes.c_uint64), ("broken", ctypes.c_uint64), ("first_broken", ctypes.c_uint64))


def read_native(blocks: Iterable[bytes], tally: Tally) -> TraceColumns | None:
    """The kept events of a file that comes in blocks; None without the library."""
    library = _library()
    reader = library.forensics_trace_open(_MOST_MEMORY) if library else None
    if library is None or not reader:
        return None
    try:
        _feed(library, reader, blocks, tally)
        found = _Tallied()
        library.forensics_trace_tallied(reader, ctypes.byref(found))
        tally.broken = found.broken
        tally.first_broken = found.first_broken if found.broken else None
        return _columns(library, reader, found.kept)
    finally:
        library.forensics_trace_close(reader)


def _feed(library: Any, reader: int, blocks: Iterable[bytes], tally: Tally) -> None:
    rest = b""
    for block in blocks:
        joined = rest + block if rest else block
        done = library.forensics_trace_feed(reader, joined, len(joined), 0)
        if done < 0:
            tally.problem = _FULL
            return
        rest = joined[done:]
        if len(rest) > _LONGEST_REST:
            tally.problem = "an event that does not end"
            return
    library.forensics_trace_feed(reader, rest, len(rest), 1)


def _columns(library: Any, reader: int, kept: int) -> TraceColumns:
    # A file that took all the memory may have one value more in some columns than in others.
    arrays: list[Any] = [np.frombuffer(_bytes(library, reader, place), dtype=kind)[:kept] for place, kind in enumerate(_TYPES)]
    texts: list[Any] = [[_text(raw) for raw in _texts(library, reader, place)] for place in (_NAME_BYTES, _TRACK_BYTES)]
    return TraceColumns._make([*arrays, *texts, _texts(library, reader, _DETAIL_BYTES)])


def _bytes(library: Any, reader: int, column: int) -> bytes:
    size = ctypes.c_uint64()
    place = library.forensics_trace_column(reader, column, ctypes.byref(size))
    return ctypes.string_at(place, size.value) if place else b""


def _texts(library: Any, reader: int, column: int) -> list[bytes]:
    content = _bytes(library, reader, column)
    ends = np.frombuffer(_bytes(library, reader, column + 1), dtype=np.uint64).tolist()
    return [content[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def _text(raw: bytes) -> str:
    """A text as JSON escapes it."""
    if b"\\" in raw:
        try:
            return str(json.loads(b'"' + raw + b'"', strict=False))
        except ValueError:
            pass
    return raw.decode("utf-8", "replace")


def is_in_use() -> bool:
    """Whether this installation has the library in the layout that is read here."""
    return _library() is not None


@cache
def _library() -> Any:
    """The library; None when there is none, it cannot be loaded, or it has another layout."""
    path = library_path("forensics_trace")
    try:
        library = ctypes.CDLL(str(path)) if path else None
        if library is None or library.forensics_trace_layout() != _LAYOUT:
            return None
    except (OSError, AttributeError):
        return None
    library.forensics_trace_open.restype, library.forensics_trace_open.argtypes = _POINTER, (ctypes.c_uint64,)
    library.forensics_trace_close.restype, library.forensics_trace_close.argtypes = None, (_POINTER,)
    feed, column, tallied = library.forensics_trace_feed, library.forensics_trace_column, library.forensics_trace_tallied
    feed.restype, feed.argtypes = ctypes.c_int64, (_POINTER, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int)
    column.restype, column.argtypes = _POINTER, (_POINTER, ctypes.c_uint32, _POINTER)
    tallied.restype, tallied.argtypes = None, (_POINTER, _POINTER)
    return library
