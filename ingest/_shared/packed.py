"""Columns in the form in which they travel between processes and into DuckDB: arrays, and texts as codes into a dictionary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, overload

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Types = Mapping[str, str]
"""SQL type by column."""

_IN_PIECES, _WORD_BYTES = frozenset("?ilqd"), 8
"""Types of arrays that are sent in one piece, and what each begins at a multiple of."""
_DTYPES: dict[str, type[np.generic]] = {"BIGINT": np.int64, "INTEGER": np.int64, "DOUBLE": np.float64, "BOOLEAN": np.bool_}


@dataclass(frozen=True, slots=True, eq=False)
class Packed(Sequence[Any]):
    """A column of `length` values.

    `data` has one value for each row, or a single one that all rows share. `mask` is True where a number is null. `words` is
    there for texts and lists: `data` then holds codes, and a null is a word that is None. A list is its JSON text.
    """

    length: int
    data: Array
    mask: npt.NDArray[np.bool_] | None = None
    words: tuple[str | None, ...] | None = None

    def __len__(self) -> int:
        return self.length

    def __reduce__(self) -> tuple[type[Packed], tuple[Any, ...]]:
        """What a pickle says of it: a dataclass would go through its fields by name, and a large job has a million columns."""
        return Packed, (self.length, self.data, self.mask, self.words)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return list(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packed) and list(self) == list(other)

    def __iter__(self) -> Iterator[Any]:
        """The values, None where null; a list as its JSON text."""
        values = self.expanded().tolist()
        return iter(values if self.words is None else map(self.words.__getitem__, values))

    @property
    def is_null(self) -> bool:
        """Whether it says in one value that all rows are null."""
        if len(self.data) != 1:
            return False
        return self.words == (None,) if self.words is not None else self.mask is not None and bool(self.mask[0])

    def expanded(self) -> Array:
        """One value for each row, masked where null."""
        data: Array = self.data if self.mask is None else np.ma.masked_array(self.data, mask=self.mask)
        return data if len(data) == self.length else data.repeat(self.length)

    def taken(self, rows: Sequence[int]) -> Packed:
        """The column with only these rows."""
        if len(self.data) != self.length:
            return Packed(len(rows), self.data, self.mask, self.words)
        chosen = np.array(rows, dtype=np.intp)
        return Packed(len(rows), self.data[chosen], None if self.mask is None else self.mask[chosen], self.words)


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """Rows for one table; a column that the table lacks is left as it came."""

    table: str
    columns: Mapping[str, Sequence[Any] | Packed]

    def __reduce__(self) -> tuple[Callable[..., PackedBatch], tuple[Any, ...]]:
        """What a pickle says of it: all arrays in one piece, for most of a large job's are of a few values."""
        pieces: list[bytes] = []
        forms = {name: _sent(column, pieces) for name, column in self.columns.items()}
        return _received, (self.table, forms, b"".join(pieces))


def _sent(column: Sequence[Any] | Packed, pieces: list[bytes]) -> tuple[Any, ...]:
    """The form of a column whose arrays are added to the pieces; a single item for one that stays as it is."""
    if not isinstance(column, Packed) or column.data.dtype.char not in _IN_PIECES:
        return (column,)
    mask = None if column.mask is None else _piece(column.mask, pieces)
    return column.length, column.data.dtype.char, _piece(column.data, pieces), mask, column.words


def _piece(array: Array, pieces: list[bytes]) -> int:
    """Add the bytes of an array, filled up so that the next one begins at a whole word, and give its values."""
    content = array.tobytes()
    pieces += (content, bytes(-len(content) % _WORD_BYTES))
    return len(array)


def _received(table: str, forms: Mapping[str, tuple[Any, ...]], content: bytes) -> PackedBatch:
    """The batch of which a pickle says this."""
    columns: dict[str, Any] = {}
    at = 0
    for name, form in forms.items():
        if len(form) == 1:
            (columns[name],) = form
            continue
        length, kind, count, masked, words = form
        mask = None
        if masked is not None:
            mask = np.frombuffer(content, np.bool_, masked, at)
            at += masked + -masked % _WORD_BYTES
        data: Array = np.frombuffer(content, kind, count, at)
        at += data.nbytes + -data.nbytes % _WORD_BYTES
        columns[name] = Packed(length, data, mask, words)
    return PackedBatch(table, columns)


def is_coded(kind: str) -> bool:
    """Whether columns of a SQL type are codes into a dictionary."""
    return kind not in _DTYPES


def pack(values: Sequence[Any] | Packed, kind: str) -> Packed:
    """Pack the values of a column of a SQL type; what is packed already stays as it is."""
    if isinstance(values, Packed):
        return values
    cells = values if isinstance(values, (list, tuple)) else list(values)
    count = len(cells)
    is_constant = count and cells[0] == cells[-1] and cells.count(cells[0]) == count
    distinct = cells[:1] if is_constant else cells
    if is_coded(kind):
        return _coded(distinct, kind, count)
    return _numeric(distinct, _DTYPES[kind], count)


def constant(value: Any, kind: str, count: int) -> Packed:
    """A column that holds one value in every row."""
    packed = _single(value, kind)
    return Packed(count, packed.data, packed.mask, packed.words)


@lru_cache(maxsize=1 << 12, typed=True)
def _single(value: Any, kind: str) -> Packed:
    return pack([value], kind)


@lru_cache(maxsize=1 << 12)
def missing(kind: str, count: int) -> Packed:
    """A column of nulls."""
    return constant(None, kind, count)


def texts(column: object) -> list[str | None]:
    """The values of a packed column of texts; none of anything else."""
    if not isinstance(column, Packed) or column.words is None:
        return []
    return [column.words[code] for code in column.expanded().tolist()]


def number_column(data: Array, mask: npt.NDArray[np.bool_]) -> Packed:
    """A column of numbers, null where the mask is True."""
    count, masked = len(data), np.count_nonzero(mask)
    if masked == count:
        return Packed(count, data[:1], mask[:1]) if count else Packed(0, data)
    if masked:
        return Packed(count, data, mask)
    return Packed(count, data[:1] if all_equal(data) else data)


def all_equal(data: Array) -> bool:
    """Whether all values are equal, of which there is at least one; the ends of most columns that vary differ already."""
    return bool(data[0] == data[-1]) and np.count_nonzero(data != data[0]) == 0


def coded_column(codes: Array, values: Sequence[str | None]) -> Packed:
    """A column of texts, given as codes into the distinct ones."""
    chosen = codes[:1] if len(values) == 1 else codes
    return Packed(len(codes), chosen.astype(np.int32), None, tuple(map(encodable, values)))


def _numeric(values: Sequence[Any], dtype: type[np.generic], count: int) -> Packed:
    """Numbers with a mask for None."""
    if None not in values:
        return Packed(count, np.array(values, dtype=dtype))
    mask = np.array([value is None for value in values], dtype=np.bool_)
    return Packed(count, np.array([0 if value is None else value for value in values], dtype=dtype), mask)


def _coded(values: Sequence[Any], kind: str, count: int) -> Packed:
    """Texts and lists as codes."""
    texts = [None if value is None else _list_text(value) for value in values] if kind.endswith("[]") else values
    codes = {text: code for code, text in enumerate(dict.fromkeys(texts))}
    data = np.fromiter(map(codes.__getitem__, texts), dtype=np.int32, count=len(texts))
    return Packed(count, data, None, tuple(map(encodable, codes)))


def _list_text(values: Sequence[Any]) -> str:
    return _text_of_members(values) if type(values) is tuple else str(list(values))


# Each rank of a large job lists all of its members.
@lru_cache(maxsize=64)
def _text_of_members(values: tuple[Any, ...]) -> str:
    return str(list(values))


def encodable(text: str | None) -> str | None:
    """A text as valid UTF-8: a pickle or a file name may hold lone surrogates, which no database takes."""
    return text if text is None or text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def joined_numbers(parts: Sequence[Packed]) -> Array:
    """The numbers of parts of a column one after the other."""
    data = _spread([part.data for part in parts], parts)
    if all(part.mask is None for part in parts):
        return data
    masks = [np.zeros(len(part.data), dtype=np.bool_) if part.mask is None else part.mask for part in parts]
    return np.ma.masked_array(data, mask=_spread(masks, parts))


def joined_texts(parts: Sequence[Packed], codes: dict[str | None, int]) -> Array:
    """The codes of texts one after the other, into one dictionary for all parts, to which new words are added."""
    own = np.array([codes.setdefault(word, len(codes)) for part in parts for word in part.words or ()], dtype=np.int32)
    begins = np.cumsum([0, *(len(part.words or ()) for part in parts[:-1])])
    places = np.concatenate([part.data for part in parts]) + np.repeat(begins, [len(part.data) for part in parts])
    return _spread([own[places]], parts)


def _spread(arrays: Sequence[Array], parts: Sequence[Packed]) -> Array:
    """What the parts have one after the other, with a value for each row where one stands for all rows of its part."""
    joined: Array = np.concatenate(arrays)
    sizes = np.fromiter([len(part.data) for part in parts], np.intp, len(parts))
    lengths = np.fromiter([part.length for part in parts], np.intp, len(parts))
    if (sizes == lengths).all():
        return joined
    return joined.repeat(np.repeat(np.where(sizes == lengths, 1, lengths), sizes))
