"""Columns of plain values into DuckDB: collected per table as arrays, inserted in large batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from forensics.case.database import Connection, schema_columns
from forensics.ingest._shared.packed import Array, Packed, Types, constant, is_coded, missing, pack

FLUSH_ROWS = 245_760
"""Two row groups of DuckDB: it compresses and stores whole ones, and keeps a rest in memory."""


@dataclass(slots=True)
class _Pending:
    """Batches of one table that were not inserted yet."""

    rows: int = 0
    lengths: list[int] = field(default_factory=list)
    batches: list[dict[str, Packed]] = field(default_factory=list)


class CaseWriter:
    """Collects rows for the tables of a case; `flush` inserts them in the order they came."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._types = schema_columns()
        self._pending: dict[str, _Pending] = {}

    def add(self, table: str, columns: Mapping[str, Sequence[Any] | Packed], constants: Mapping[str, Any]) -> int:
        """Add rows to a table and give their number.

        `constants` fill columns that the table has and `columns` lacks. Raises ValueError for columns of unequal length and
        for columns or tables that the schema does not have: that is a defect of an ingester, not of the evidence.
        """
        types = self._types.get(table, {})
        count = row_count(table, columns, types)
        if not count:
            return 0
        batch = {name: pack(values, types[name]) for name, values in columns.items()}
        for name, value in constants.items():
            if name in types and name not in batch and value is not None:
                batch[name] = constant(value, types[name], count)
        pending = self._pending.setdefault(table, _Pending())
        pending.rows += count
        pending.lengths.append(count)
        pending.batches.append(batch)
        if pending.rows >= FLUSH_ROWS:
            self._insert(table)
        return count

    def flush(self) -> None:
        """Insert everything that is still held."""
        for table in list(self._pending):
            self._insert(table)

    def _insert(self, table: str) -> None:
        pending = self._pending.pop(table)
        types = self._types[table]
        names = [name for name in types if _tells(name, pending)] or list(pending.batches[0])[:1]
        joined: dict[str, Array] = {}
        words: list[list[str | None]] = []
        cells = []
        for name in names:
            parts = _parts(name, types[name], pending)
            if is_coded(types[name]):
                joined[name], dictionary = _merged(parts)
                words.append(dictionary)
                cells.append(f'TRY_CAST((?::VARCHAR[])["{name}" + 1] AS {types[name]})')
            else:
                joined[name] = _concatenated(parts)
                cells.append(f'TRY_CAST("{name}" AS {types[name]})')
        listed = ", ".join(f'"{name}"' for name in names)
        self._connection.register("incoming_rows", joined)
        try:
            self._connection.execute(f"INSERT INTO {table} ({listed}) SELECT {', '.join(cells)} FROM incoming_rows", words)
        finally:
            self._connection.unregister("incoming_rows")


def row_count(table: str, columns: Mapping[str, Sequence[Any] | Packed], types: Types) -> int:
    """Rows of a batch; raises ValueError when its columns do not fit each other or the table."""
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1 or not set(columns) <= set(types):
        raise ValueError(f"rows for {table}: lengths {sorted(lengths)}, columns {sorted(set(columns) - set(types))}")
    return lengths.pop()


def _tells(name: str, pending: _Pending) -> bool:
    """Whether any batch has a value in a column: what is not inserted is null, without a cast for each row of nothing."""
    columns = (batch.get(name) for batch in pending.batches)
    return any(column is not None and not column.is_null for column in columns)


def _parts(name: str, kind: str, pending: _Pending) -> list[Packed]:
    """All batches of a column, null where a batch lacks it."""
    pairs = zip(pending.lengths, pending.batches, strict=True)
    return [batch[name] if name in batch else missing(kind, count) for count, batch in pairs]


def _concatenated(parts: Sequence[Packed]) -> Array:
    """Numbers one after the other."""
    data = _spread([part.data for part in parts], parts)
    if all(part.mask is None for part in parts):
        return data
    masks = [np.zeros(len(part.data), dtype=np.bool_) if part.mask is None else part.mask for part in parts]
    return np.ma.masked_array(data, mask=_spread(masks, parts))


def _merged(parts: Sequence[Packed]) -> tuple[Array, list[str | None]]:
    """Codes one after the other, into one dictionary for all parts."""
    codes: dict[str | None, int] = {}
    own = np.array([codes.setdefault(word, len(codes)) for part in parts for word in part.words or ()], dtype=np.int32)
    begins = np.cumsum([0, *(len(part.words or ()) for part in parts[:-1])])
    places = np.concatenate([part.data for part in parts]) + np.repeat(begins, [len(part.data) for part in parts])
    return _spread([own[places]], parts), list(codes)


def _spread(arrays: Sequence[Array], parts: Sequence[Packed]) -> Array:
    """What the parts have one after the other, with a value for each row where one stands for all rows of its part."""
    joined: Array = np.concatenate(arrays)
    sizes, lengths = np.array([(len(part.data), part.length) for part in parts]).T
    if (sizes == lengths).all():
        return joined
    return joined.repeat(np.repeat(np.where(sizes == lengths, 1, lengths), sizes))
