"""Columns of plain values into DuckDB: collected per table as arrays, inserted in large batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forensics.case.call_store import CallStore
from forensics.case.database import Connection, schema_columns
from forensics.case.insertion import insert_columns
from forensics.ingest._shared.packed import Packed, Types, constant, missing, pack

FLUSH_ROWS = 245_760
"""Two row groups of DuckDB: it compresses and stores whole ones, and keeps a rest in memory."""
FLUSH_LETTERS = 1 << 27
"""Of lists, which are text until they are inserted: a row of NIC epochs may hold a million values."""


@dataclass(slots=True)
class _Pending:
    """Batches of one table that were not inserted yet."""

    rows: int = 0
    letters: int = 0
    lengths: list[int] = field(default_factory=list)
    batches: list[dict[str, Packed]] = field(default_factory=list)


class CaseWriter:
    """Collects rows for the tables of a case; `flush` inserts them in the order they came.

    With `narrow` operations are stored behind a view (`CallStore`), which `flush` makes: it then comes last.
    """

    def __init__(self, connection: Connection, narrow: bool = False) -> None:
        self._connection = connection
        self._calls = CallStore(connection) if narrow else None
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
        pending.letters += sum(_letters(column) for name, column in batch.items() if types[name].endswith("[]"))
        if pending.rows >= FLUSH_ROWS or pending.letters >= FLUSH_LETTERS:
            self._insert(table)
        return count

    def flush(self) -> None:
        """Insert everything that is still held."""
        for table in list(self._pending):
            self._insert(table)
        if self._calls is not None:
            self._calls.finish()

    def _insert(self, table: str) -> None:
        pending = self._pending.pop(table)
        types = self._types[table]
        names = [name for name in types if _tells(name, pending)] or list(pending.batches[0])[:1]
        columns = {name: _parts(name, types[name], pending) for name in names}
        if table == "operations" and self._calls is not None:
            self._calls.insert(columns)
        else:
            insert_columns(self._connection, table, columns, types)


def row_count(table: str, columns: Mapping[str, Sequence[Any] | Packed], types: Types) -> int:
    """Rows of a batch; raises ValueError when its columns do not fit each other or the table."""
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1 or not set(columns) <= set(types):
        raise ValueError(f"rows for {table}: lengths {sorted(lengths)}, columns {sorted(set(columns) - set(types))}")
    return lengths.pop()


def _letters(column: Packed) -> int:
    """Length of the lists of a column as text."""
    return sum(len(word or "") for word in column.words or ())


def _tells(name: str, pending: _Pending) -> bool:
    """Whether any batch has a value in a column: what is not inserted is null, without a cast for each row of nothing."""
    columns = (batch.get(name) for batch in pending.batches)
    return any(column is not None and not column.is_null for column in columns)


def _parts(name: str, kind: str, pending: _Pending) -> list[Packed]:
    """All batches of a column, null where a batch lacks it."""
    pairs = zip(pending.lengths, pending.batches, strict=True)
    return [batch[name] if name in batch else missing(kind, count) for count, batch in pairs]
