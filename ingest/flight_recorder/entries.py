"""Entries of a Flight Recorder dump as columns by key: numbers with what is known of them, and codes of distinct values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, prod
from operator import itemgetter
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from forensics.ingest._shared.packed import Packed, coded_column, number_column
from forensics.ingest._shared.values import integer
from forensics.ingest._shared.weights import Allowed, Weights, read_within

T = TypeVar("T")
V = TypeVar("V", covariant=True)
Read = Callable[[Any], T]

Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int64]

_LONGEST_COMPARED, _LONGEST_INNER = 256, 64
_INT64 = 1 << 63
_SMALL = 1 << 16
KEYS = (
    "frames", "record_id", "id", "pg_id", "process_group", "thread_name", "thread_id", "collective_seq_id", "p2p_seq_id",
    "seq_id", "op_id", "profiling_name", "time_created_ns", "time_created_us", "duration_ms", "input_sizes", "input_dtypes",
    "output_sizes", "state", "time_discovered_started_ns", "time_discovered_completed_ns", "retired", "timeout_ms", "is_p2p",
)  # fmt: skip
"""What the columns are made from. Keys of a damaged dump may all differ: others are not kept."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """A number for each entry; `known` is False where there is none, and `data` then without meaning."""

    data: npt.NDArray[Any]
    known: Flags

    def where(self, condition: Flags) -> Numbers:
        """The same numbers, known only where the condition holds too."""
        return Numbers(self.data, self.known & condition)

    def since(self, place: int) -> Numbers:
        """Those from a place on."""
        return Numbers(self.data[place:], self.known[place:])

    def packed(self) -> Packed:
        """As a column of a table."""
        return number_column(self.data, ~self.known)

    def coded(self) -> Coded[int | None]:
        """As codes of the distinct numbers, None among them where there is none."""
        values, codes = _distinct(np.where(self.known, self.data, 0))
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

    def since(self, place: int) -> Coded[V]:
        """Those from a place on."""
        return Coded(self.codes[place:], self.values)

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

    def since(self, place: int) -> Entries:
        """Those from a place on."""

    @property
    def heavy(self) -> list[str]:
        """Keys of which some values were left out so far, for they say far more than the file holds."""


@dataclass(frozen=True, slots=True)
class ListedEntries:
    """Entries that were read as Python values: the values of `count` entries under each key that any of them has."""

    count: int
    columns: Mapping[str, Sequence[Any]]
    allowed: Allowed | None = None
    heavy: list[str] = field(default_factory=list)

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
        numbers: dict[Any, int] = {}
        first: list[Any] = []
        codes = np.empty(self.count, dtype=np.int64)
        identities = _Identities()
        for place, value in enumerate(values):
            code = codes[place] = numbers.setdefault(identities.of(value), len(numbers))
            if code == len(first):
                first.append(value)
        return Coded(codes, self._read(key, first, read))

    def since(self, place: int) -> ListedEntries:
        """Those from a place on."""
        return replace(self, count=self.count - place, columns={key: each[place:] for key, each in self.columns.items()})

    def _read(self, key: str, values: Sequence[Any], read: Read[T]) -> list[T]:
        if self.allowed is None:
            return [read(value) for value in values]
        found, is_heavy = read_within(values, Weights().of, read, lambda: read(None), self.allowed)
        if is_heavy:
            self.heavy.append(key)
        return found

    def _values(self, *keys: str) -> Sequence[Any]:
        found = next((self.columns[key] for key in keys if key in self.columns), None)
        return [None] * self.count if found is None else found


def read_entries(entries: Sequence[dict[str, Any]], allowed: Allowed | None = None) -> ListedEntries:
    """Take the entries apart. Touching each dictionary once matters: together they do not fit into a processor's cache.

    `allowed` is what their values may say, None where nothing in them can refer to anything (JSON).
    """
    if entries and set(map(len, entries)) == {len(entries[0])} and len(entries[0]) > 1:
        names = list(entries[0])
        try:
            rows = list(map(itemgetter(*names), entries))
            return ListedEntries(len(rows), dict(zip(names, zip(*rows, strict=True), strict=True)), allowed)
        except KeyError:
            pass
    present = [key for key in KEYS if any(key in entry for entry in entries)]
    return ListedEntries(len(entries), {key: [entry.get(key) for entry in entries] for key in present}, allowed)


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


def _distinct(numbers: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Codes]:
    """The distinct numbers, in order, and their places in it."""
    if numbers.dtype == np.int64 and len(numbers) and int(numbers.min()) >= 0 and int(numbers.max()) < _SMALL:
        return dense(numbers, int(numbers.max()) + 1)
    distinct, codes = np.unique(numbers, return_inverse=True)
    return distinct, codes


def _numbers(values: Sequence[Any], dtype: type[np.generic]) -> Numbers:
    known = np.array([value is not None for value in values], dtype=np.bool_)
    return Numbers(np.array([0 if value is None else value for value in values], dtype=dtype), known)


def _is_finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


class _Identities:
    """What equal values share. Dictionaries, of which a dump has one for each distinct frame, are distinguished as objects.

    So are long or deep lists, and each object is looked at once: rows may all refer to one list.
    """

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}
        self._inner: dict[int, int] = {}
        self._numbers: dict[Any, int] = {}

    def of(self, value: Any) -> Any:
        """A key that is the same for equal values."""
        kind = type(value)
        if kind is list or kind is tuple:
            found = self._known.get(id(value))
            if found is None:
                found = self._known[id(value)] = self._of_items(value)
            return found
        return ~id(value) if kind is dict else _of_leaf(value)

    def _of_items(self, value: Sequence[Any]) -> Any:
        if type(value) is list and value and type(value[0]) is dict:
            return self._number(tuple(map(id, value)))
        if len(value) > _LONGEST_COMPARED:
            return ~id(value)
        return self._number((type(value), tuple([self._of_item(item) for item in value])))

    def _of_item(self, item: Any) -> Any:
        kind = type(item)
        if kind is dict:
            return ~id(item)
        if kind is not list and kind is not tuple:
            return _of_leaf(item)
        found = self._inner.get(id(item))
        if found is None:
            found = self._inner[id(item)] = self._of_inner(item)
        return found

    def _of_inner(self, items: Sequence[Any]) -> int:
        if len(items) > _LONGEST_INNER or not {list, tuple, dict}.isdisjoint(map(type, items)):
            return ~id(items)
        return self._number((type(items), tuple([_of_leaf(item) for item in items])))

    def _number(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def _of_leaf(value: Any) -> tuple[Any, ...]:
    """Hashes of integers beyond 64 bits can be chosen, those of texts not."""
    kind = type(value)
    return (kind, value) if kind is not int or -_INT64 <= value < _INT64 else (kind, hex(value))
