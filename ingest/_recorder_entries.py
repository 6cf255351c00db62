"""Entries of a Flight Recorder dump as columns by key: numbers with what is known of them, and codes of distinct values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, prod
from operator import itemgetter
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from forensics.ingest._values import integer
from forensics.ingest.packed import Packed, coded_column, number_column

T = TypeVar("T")
V = TypeVar("V", covariant=True)
Read = Callable[[Any], T]

Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int64]

_MAX_NESTING = 4
_SMALL = 1 << 16
# What the columns are made from. Keys of a damaged dump may all differ: others are not kept.
_KEYS = (
    "frames", "record_id", "id", "pg_id", "process_group", "thread_name", "thread_id", "collective_seq_id", "p2p_seq_id",
    "seq_id", "op_id", "profiling_name", "time_created_ns", "time_created_us", "duration_ms", "input_sizes", "input_dtypes",
    "output_sizes", "state", "time_discovered_started_ns", "time_discovered_completed_ns", "retired", "timeout_ms", "is_p2p",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Numbers:
    """A number for each entry; `known` is False where there is none, and `data` then without meaning."""

    data: npt.NDArray[Any]
    known: Flags

    def where(self, condition: Flags) -> Numbers:
        """The same numbers, known only where the condition holds too."""
        return Numbers(self.data, self.known & condition)

    def packed(self) -> Packed:
        """As a column of a table."""
        return number_column(self.data, ~self.known)

    def coded(self) -> Coded[int | None]:
        """As codes of the distinct numbers, None among them where there is none."""
        values, codes = np.unique(np.where(self.known, self.data, 0), return_inverse=True)
        if self.known.all():
            return Coded(codes, values.tolist())
        return Coded(np.where(self.known, codes, len(values)), [*values.tolist(), None])


@dataclass(frozen=True, slots=True)
class Coded(Generic[V]):
    """A value for each entry, as codes into the distinct ones."""

    codes: Codes
    values: Sequence[V]

    def mapped(self, read: Callable[[V], T]) -> Coded[T]:
        """Each distinct value replaced by what is read from it."""
        return Coded(self.codes, [read(value) for value in self.values])

    def texts(self: Coded[str | None]) -> Packed:
        """As a column of texts."""
        return coded_column(self.codes, self.values)

    def numbers(self: Coded[int | None]) -> Numbers:
        """As numbers."""
        data = np.array([0 if value is None else value for value in self.values], dtype=np.int64)
        known = np.array([value is not None for value in self.values], dtype=np.bool_)
        return Numbers(data[self.codes], known[self.codes])

    def listed(self) -> list[V]:
        """The value of each entry."""
        return [self.values[code] for code in self.codes.tolist()]


class Entries(Protocol):
    """The entries of one dump. Of several keys the first that any entry has counts: names changed with the schema."""

    @property
    def count(self) -> int:
        """How many there are."""

    def has(self, key: str) -> bool:
        """Whether any entry has the key."""

    def integers(self, *keys: str) -> Numbers:
        """int64; what is no integer is unknown."""

    def reals(self, key: str) -> Numbers:
        """Finite floats, integers among them."""

    def flags(self, key: str) -> Numbers:
        """Booleans."""

    def coded(self, key: str, read: Read[T]) -> Coded[T]:
        """What `read` makes of each distinct value, of None where an entry lacks the key. `read` must be pure."""


@dataclass(frozen=True, slots=True)
class ListedEntries:
    """Entries that were read as Python values: the values of `count` entries under each key that any of them has."""

    count: int
    columns: Mapping[str, Sequence[Any]]

    def has(self, key: str) -> bool:
        """Whether any entry has the key."""
        return key in self.columns

    def integers(self, *keys: str) -> Numbers:
        """int64; decimal texts count too, as JSON dumps write some numbers."""
        return _numbers([integer(value) for value in self._values(*keys)], np.int64)

    def reals(self, key: str) -> Numbers:
        """Finite floats, integers among them."""
        values = [value if type(value) in (int, float) and _is_finite(value) else None for value in self._values(key)]
        return _numbers(values, np.float64)

    def flags(self, key: str) -> Numbers:
        """Booleans."""
        return _numbers([value if type(value) is bool else None for value in self._values(key)], np.bool_)

    def coded(self, key: str, read: Read[T]) -> Coded[T]:
        """What `read` makes of each distinct value."""
        values = self._values(key)
        first: dict[Any, Any] = {}
        numbers: dict[Any, int] = {}
        codes = np.empty(self.count, dtype=np.int64)
        for place, value in enumerate(values):
            identity = _identity(value)
            codes[place] = numbers.setdefault(identity, len(numbers))
            first.setdefault(identity, value)
        return Coded(codes, [read(value) for value in first.values()])

    def _values(self, *keys: str) -> Sequence[Any]:
        found = next((self.columns[key] for key in keys if key in self.columns), None)
        return [None] * self.count if found is None else found


def read_entries(entries: Sequence[dict[str, Any]]) -> ListedEntries:
    """Take the entries apart. Touching each dictionary once matters: together they do not fit into a processor's cache."""
    if entries and set(map(len, entries)) == {len(entries[0])} and len(entries[0]) > 1:
        names = list(entries[0])
        try:
            rows = list(map(itemgetter(*names), entries))
            return ListedEntries(len(rows), dict(zip(names, zip(*rows, strict=True), strict=True)))
        except KeyError:
            pass
    present = [key for key in _KEYS if any(key in entry for entry in entries)]
    return ListedEntries(len(entries), {key: [entry.get(key) for entry in entries] for key in present})


def combined(*columns: Coded[Any]) -> Coded[tuple[Any, ...]]:
    """The distinct combinations of several columns of equal length."""
    sizes = [max(len(column.values), 1) for column in columns]
    if prod(sizes) >= 1 << 62:
        listed = list(zip(*(column.listed() for column in columns), strict=True))
        numbers = {row: code for code, row in enumerate(dict.fromkeys(listed))}
        return Coded(np.array([numbers[row] for row in listed], dtype=np.int64), list(numbers))
    keys = np.zeros(len(columns[0].codes), dtype=np.int64)
    for column, size in zip(columns, sizes, strict=True):
        keys = keys * size + column.codes
    distinct, codes = dense(keys, prod(sizes))
    rows: list[tuple[Any, ...]] = []
    for key in distinct.tolist():
        row = []
        for column, size in zip(reversed(columns), reversed(sizes), strict=True):
            key, code = divmod(key, size)
            row.append(column.values[code])
        rows.append(tuple(reversed(row)))
    return Coded(codes, rows)


def dense(keys: Int64s, bound: int) -> tuple[Int64s, Codes]:
    """The distinct ones of keys from 0 up to a bound, in order, and their places in it; without sorting where it is small."""
    if bound > max(_SMALL, 4 * len(keys)):
        distinct, codes = np.unique(keys, return_inverse=True)
        return distinct, codes
    present = np.zeros(bound, dtype=np.bool_)
    present[keys] = True
    places = np.cumsum(present) - 1
    return np.flatnonzero(present), places[keys]


def _numbers(values: Sequence[Any], dtype: type[np.generic]) -> Numbers:
    known = np.array([value is not None for value in values], dtype=np.bool_)
    return Numbers(np.array([0 if value is None else value for value in values], dtype=dtype), known)


def _is_finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


def _identity(value: Any, nesting: int = _MAX_NESTING) -> Any:
    """What equal values share. Dictionaries, of which a dump has one for each distinct frame, are told apart as objects."""
    if type(value) is list and value and type(value[0]) is dict:
        return tuple(map(id, value))
    if isinstance(value, (list, tuple)) and nesting:
        return type(value), tuple([_identity(item, nesting - 1) for item in value])
    if isinstance(value, (list, tuple, dict)):
        return id(value)
    return type(value), value
