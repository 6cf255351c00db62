"""Columns of plain values into DuckDB: collected per table as arrays, inserted in large batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from forensics.case.database import Connection, table_columns

FLUSH_ROWS = 250_000

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Values:
    """One column: its data, and a mask that is True where it is null (None when nothing is, or when data holds None)."""

    data: Array
    mask: npt.NDArray[np.bool_] | None = None


@dataclass(slots=True)
class _Pending:
    """Batches of one table that were not inserted yet."""

    lengths: list[int] = field(default_factory=list)
    batches: list[dict[str, _Values]] = field(default_factory=list)


class CaseWriter:
    """Collects rows for the tables of a case; `flush` inserts them in the order they came."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._types = table_columns(connection)
        self._pending: dict[str, _Pending] = {}

    def add(self, table: str, columns: Mapping[str, Sequence[Any]], constants: Mapping[str, Any]) -> int:
        """Add rows to a table and give their number.

        `constants` fill columns that the table has and `columns` lacks. Raises ValueError for columns of unequal length and
        for columns or tables that the schema does not have: that is a defect of an ingester, not of the evidence.
        """
        types = self._types.get(table, {})
        lengths = {len(values) for values in columns.values()}
        if len(lengths) != 1 or not set(columns) <= set(types):
            raise ValueError(f"rows for {table}: lengths {sorted(lengths)}, columns {sorted(set(columns) - set(types))}")
        count = lengths.pop()
        if not count:
            return 0
        batch = {name: _values(values, types[name]) for name, values in columns.items()}
        for name, value in constants.items():
            if name in types and name not in batch and value is not None:
                batch[name] = _values([value], types[name], count)
        pending = self._pending.setdefault(table, _Pending())
        pending.lengths.append(count)
        pending.batches.append(batch)
        if sum(pending.lengths) >= FLUSH_ROWS:
            self._insert(table)
        return count

    def flush(self) -> None:
        """Insert everything that is still held."""
        for table in list(self._pending):
            self._insert(table)

    def _insert(self, table: str) -> None:
        pending = self._pending.pop(table)
        types = self._types[table]
        names = [name for name in types if any(name in batch for batch in pending.batches)]
        joined = {name: _joined(name, types[name], pending) for name in names}
        casts = ", ".join(f'TRY_CAST("{name}" AS {types[name]})' for name in names)
        columns = ", ".join(f'"{name}"' for name in names)
        self._connection.register("incoming_rows", joined)
        try:
            self._connection.execute(f"INSERT INTO {table} ({columns}) SELECT {casts} FROM incoming_rows")
        finally:
            self._connection.unregister("incoming_rows")


def _values(values: Sequence[Any], kind: str, repeat: int = 0) -> _Values:
    """A column as the array DuckDB takes for its SQL type; a single value is repeated `repeat` times."""
    if kind in ("BIGINT", "INTEGER"):
        result = _numeric(values, np.int64)
    elif kind == "DOUBLE":
        result = _numeric(values, np.float64)
    elif kind == "BOOLEAN":
        result = _numeric(values, np.bool_)
    elif kind.endswith("[]"):
        result = _Values(_objects([None if value is None else str(list(value)) for value in values]))
    else:
        result = _Values(_objects(_encodable(values)))
    return _Values(np.repeat(result.data, repeat)) if repeat else result


def _numeric(values: Sequence[Any], dtype: type[np.generic]) -> _Values:
    """Numbers with a mask for None."""
    if None not in values:
        return _Values(np.array(values, dtype=dtype))
    cells = _objects(values)
    mask = np.array([value is None for value in values], dtype=np.bool_)
    cells[mask] = 0
    return _Values(cells.astype(dtype), mask)


def _objects(values: Sequence[Any]) -> Array:
    cells = np.empty(len(values), dtype=object)
    cells[:] = values
    return cells


def _encodable(values: Sequence[Any]) -> Sequence[Any]:
    """Texts as valid UTF-8: a pickle or a file name may hold lone surrogates, which no database takes."""
    repaired = {}
    for value in set(values):
        if value is not None and not value.isascii():
            clean = value.encode("utf-8", "replace").decode("utf-8")
            if clean != value:
                repaired[value] = clean
    return [repaired.get(value, value) for value in values] if repaired else values


def _joined(name: str, kind: str, pending: _Pending) -> Array:
    """All batches of a column one after the other, null where a batch lacks it."""
    parts = [batch.get(name) or _missing(kind, count) for count, batch in zip(pending.lengths, pending.batches, strict=True)]
    data = np.concatenate([part.data for part in parts])
    if all(part.mask is None for part in parts):
        return data
    masks = [np.zeros(len(part.data), dtype=np.bool_) if part.mask is None else part.mask for part in parts]
    return np.ma.masked_array(data, mask=np.concatenate(masks))


def _missing(kind: str, count: int) -> _Values:
    if kind in ("BIGINT", "INTEGER", "DOUBLE", "BOOLEAN"):
        dtype = {"DOUBLE": np.float64, "BOOLEAN": np.bool_}.get(kind, np.int64)
        return _Values(np.zeros(count, dtype=dtype), np.ones(count, dtype=np.bool_))
    return _Values(np.full(count, None, dtype=object))
