"""Pickled dumps through the native reader: columns straight from the bytes, no Python object for each value.

Sound dumps only. Without the library, and for whatever it does not take, Python's restricted unpickler reads the dump, says
what is wrong with it and salvages what is whole. Both give the same columns (docs/decisions/0009-native-pickle-reader.md).
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from forensics.ingest._shared.values import integer
from forensics.ingest._shared.weights import Allowed, allowed, read_within
from forensics.ingest.flight_recorder.entries import KEYS, Coded, Flags, Numbers, Read, dense
from forensics.native import library_path

T = TypeVar("T")

_LAYOUT = 4
_ABSENT, _NONE, _BOOL, _INT, _FLOAT, _TEXT, _UNREADABLE = 0, 1, 2, 3, 4, 5, 9
_TAGS = 16
_ABSENT_MEMBER = -1
_MEMORY_FLOOR = 12 << 20
_MEMORY_PER_BYTE = 24
_MOST_MEMORY = 2 << 30
_SHORT, _MOST_JSON = 1 << 16, 64 << 20
_NAME = ("profiling_name",)
# What tells whose each call is and whether it is over is asked of all entries, the rest of those that are kept.
_OF_ALL = (
    *("profiling_name", "process_group", "pg_id", "state", "retired", "is_p2p", "collective_seq_id", "p2p_seq_id", "seq_id"),
    *("op_id", "time_created_ns", "time_created_us", "time_discovered_started_ns", "time_discovered_completed_ns"),
)
_OF_KEPT = tuple(key for key in KEYS if key not in _OF_ALL)
MEMBERS = ("version", "pg_config", "pg_status", "comm_lib_version", "nccl_version", "nccl_comm_state")

# name: result, arguments (native/include/forensics/pickle.h, layout 4).
_POINTER, _KEY = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_uint32)
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "layout": (ctypes.c_uint32, ()),
    "read": (_POINTER, (ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.POINTER(ctypes.c_int))),
    "free": (None, (_POINTER,)),
    "member": (ctypes.c_int64, (_POINTER, *_KEY)),
    "rows": (ctypes.c_int64, (_POINTER, *_KEY)),
    "columns": (None, (_POINTER, _POINTER, _POINTER, ctypes.c_uint32, ctypes.c_uint64, _POINTER, _POINTER)),
    "weight": (ctypes.c_int64, (_POINTER, ctypes.c_int64)),
    "json": (ctypes.c_int64, (_POINTER, ctypes.c_int64, _POINTER, ctypes.c_uint64)),
}


class _Library(NamedTuple):
    """The functions of libforensics_pickle.so."""

    read: Any
    free: Any
    member: Any
    rows: Any
    columns: Any
    weight: Any
    json: Any


class _Column(NamedTuple):
    """What each entry has under one key: the kind of value, and the value or the number of the distinct one."""

    tags: npt.NDArray[np.uint8]
    values: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NativeEntries:
    """Entries of a pickle that the native reader holds, from `first` on; valid until it is closed."""

    first: int
    count: int
    library: _Library
    pickle: int
    allowed: Allowed
    columns: dict[str, _Column]
    heavy: list[str] = field(default_factory=list)

    def has(self, key: str) -> bool:
        """Whether any entry has the key."""
        return bool(self._column(key).tags.any())

    def integers(self, *keys: str) -> Numbers:
        """int64; decimal texts and integral floats count too."""
        tags, values = next((found for found in map(self._column, keys) if found.tags.any()), self._column(keys[0]))
        known = tags == _INT
        if not ((tags == _TEXT) | (tags == _FLOAT)).any():
            return Numbers(values, known)
        cells: list[int | None] = [integer(self._value(tag, value)) for tag, value in _pairs(tags, values)]
        return Coded(np.arange(self.count), cells).numbers()

    def reals(self, key: str) -> Numbers:
        """Finite floats, integers among them."""
        tags, values = self._column(key)
        data = np.where(tags == _FLOAT, values.view(np.float64), values.astype(np.float64))
        return Numbers(data, ((tags == _FLOAT) | (tags == _INT)) & np.isfinite(data))

    def flags(self, key: str) -> Numbers:
        """Booleans."""
        tags, values = self._column(key)
        return Numbers(values != 0, tags == _BOOL)

    def coded(self, key: str, read: Read[T]) -> Coded[T]:
        """What `read` makes of each distinct value; equal values of many dumps are read once in a process."""
        tags, values = self._column(key)
        if self.count and (tags >= _TEXT).all() and (tags != _UNREADABLE).all():
            distinct, codes = dense(values, int(values.max()) + 1)
            return Coded(codes, self._read_all(key, read, [(_TEXT, number) for number in distinct.tolist()]))
        distinct, places = np.unique(values, return_inverse=True)
        kinds, codes = dense(places * _TAGS + tags, len(distinct) * _TAGS)
        pairs = zip((kinds % _TAGS).tolist(), distinct[kinds // _TAGS].tolist(), strict=True)
        return Coded(codes, self._read_all(key, read, list(pairs)))

    def since(self, place: int) -> NativeEntries:
        """Those from a place on."""
        columns = {key: _Column(tags[place:], values[place:]) for key, (tags, values) in self.columns.items()}
        return replace(self, first=self.first + place, count=self.count - place, columns=columns)

    def _column(self, key: str) -> _Column:
        if key not in self.columns:
            self.columns.update(_columns(self.library, self.pickle, self.first, self.count, _OF_KEPT))
        return self.columns[key]

    def _read_all(self, key: str, read: Read[T], pairs: list[tuple[int, int]]) -> list[T]:
        def read_pair(pair: tuple[int, int]) -> T:
            tag, value = pair
            is_distinct = tag >= _TEXT and tag != _UNREADABLE
            return self._read_distinct(read, value) if is_distinct else read(self._value(tag, value))

        found, is_heavy = read_within(pairs, self._weight, read_pair, lambda: read(None), self.allowed)
        if is_heavy or any(tag == _UNREADABLE for tag, _ in pairs):
            self.heavy.append(key)
        return found

    def _weight(self, pair: tuple[int, int]) -> int:
        tag, value = pair
        return int(self.library.weight(self.pickle, value)) if _TEXT <= tag < _UNREADABLE else 0

    def _read_distinct(self, read: Read[T], number: int) -> T:
        text = _json_text(self.library, self.pickle, number)
        found: T = read(None) if text is None else _read_json(read, text)
        return found

    def _value(self, tag: int, value: int) -> Any:
        if tag in (_ABSENT, _NONE, _UNREADABLE):
            return None
        if tag >= _TEXT:
            text = _json_text(self.library, self.pickle, value)
            return None if text is None else json.loads(text)
        return bool(value) if tag == _BOOL else value if tag == _INT else float(np.int64(value).view(np.float64))


class NativeDump(NamedTuple):
    """The entries of a dump, and the other top-level values that are used."""

    entries: NativeEntries
    values: dict[str, Any]


@contextmanager
def open_dump(content: bytes) -> Iterator[NativeDump | None]:
    """A sound dump of entries that all have a profiling name; None for anything else, or without the library."""
    library = _library() if content[:1] == b"\x80" else None
    status = ctypes.c_int()
    memory = min(_MEMORY_FLOOR + len(content) * _MEMORY_PER_BYTE, _MOST_MEMORY)
    pickle = library.read(content, len(content), memory, ctypes.byref(status)) if library else None
    if library is None or not pickle:
        yield None
        return
    try:
        yield _dump(library, pickle, allowed(len(content)))
    finally:
        library.free(pickle)


def _dump(library: _Library, pickle: int, limits: Allowed) -> NativeDump | None:
    count = library.rows(pickle, b"entries", len(b"entries"))
    # The columns of rows that say nothing would take many times the memory of the file.
    if count < 0 or not (_columns(library, pickle, 0, count, _NAME)[_NAME[0]].tags == _TEXT).all():
        return None
    heavy: list[str] = []
    entries = NativeEntries(0, count, library, pickle, limits, _columns(library, pickle, 0, count, _OF_ALL), heavy)
    return NativeDump(entries, _members(library, pickle, limits, heavy))


def _columns(library: _Library, pickle: int, first: int, count: int, keys: tuple[str, ...]) -> dict[str, _Column]:
    tags = np.empty((len(keys), count), dtype=np.uint8)
    values = np.empty((len(keys), count), dtype=np.int64)
    library.columns(pickle, *_as_passed(keys), len(keys), first, tags.ctypes.data, values.ctypes.data)
    return dict(zip(keys, map(_Column, tags, values), strict=True))


@cache
def _as_passed(keys: tuple[str, ...]) -> tuple[Any, Any]:
    """Keys as the library takes them, and their lengths."""
    names = [key.encode() for key in keys]
    return (ctypes.c_char_p * len(names))(*names), (ctypes.c_uint32 * len(names))(*map(len, names))


def _members(library: _Library, pickle: int, limits: Allowed, heavy: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in MEMBERS:
        number = library.member(pickle, name.encode(), len(name))
        if number == _ABSENT_MEMBER:
            continue
        is_light = number >= 0 and library.weight(pickle, number) <= limits.value
        text = _json_text(library, pickle, number) if is_light else None
        found[name] = None if text is None else json.loads(text)
        if not is_light:
            heavy.append(name)
    return found


def _pairs(tags: Flags | npt.NDArray[np.uint8], values: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    return zip(tags.tolist(), values.tolist(), strict=True)


@cache
def _buffer() -> tuple[npt.NDArray[np.uint8], int]:
    return _new_buffer(_SHORT)


def _new_buffer(size: int) -> tuple[npt.NDArray[np.uint8], int]:
    """A buffer and its address, which numpy takes longer to give than many a value takes to write."""
    buffer = np.empty(size, dtype=np.uint8)
    return buffer, buffer.ctypes.data


def _json_text(library: _Library, pickle: int, number: int, size: int = _SHORT) -> bytes | None:
    """A distinct value as JSON, None when it is too long or cannot be JSON."""
    buffer, address = _buffer() if size == _SHORT else _new_buffer(size)
    length = library.json(pickle, number, address, size)
    if 0 <= length <= size:
        return buffer[:length].tobytes()
    return _json_text(library, pickle, number, size << 2) if length > 0 and size < _MOST_JSON else None


@lru_cache(maxsize=1 << 14)
def _read_json(read: Read[Any], text: bytes) -> Any:
    return read(json.loads(text))


def is_in_use() -> bool:
    """Whether this installation has the library in the layout that is read here."""
    return _library() is not None


@cache
def _library() -> _Library | None:
    """The library's functions; None when there is none, it cannot be loaded, or it has another layout."""
    path = library_path("forensics_pickle")
    try:
        library = ctypes.CDLL(str(path)) if path else None
    except OSError:
        return None
    if library is None:
        return None
    try:
        functions = {name: getattr(library, f"forensics_pickle_{name}") for name in _FUNCTIONS}
    except AttributeError:
        return None
    for name, function in functions.items():
        function.restype, function.argtypes = _FUNCTIONS[name]
    return _Library(*(functions[name] for name in _Library._fields)) if functions["layout"]() == _LAYOUT else None
