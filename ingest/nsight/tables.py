"""Tables of an Nsight export: made lazily by the exporter, so that any table and any column may be missing."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
_ROWS = 1 << 16
_MOST = 1 << 62
_KNOWN = re.compile(r"[A-Z][A-Za-z_]{2,60}(?:_V\d{1,4})?$")
_LONGEST_TEXT = 1 << 20
_INTEGER = 'CASE typeof("{0}") WHEN \'integer\' THEN "{0}" ELSE -1 END'
# Steps of SQLite's machine: a row takes one for each of its columns and a few more, and each table is gone over once or twice.
_STEPS, _STEPS_OF_A_BYTE = 1000, 1.5


class _Limits:
    """How much the database may still do.

    Damaged pages may point to one page from many places: an export then has far more rows and texts than bytes.
    """

    def __init__(self, database: sqlite3.Connection, size: int) -> None:
        self._steps = int(_STEPS_OF_A_BYTE * size / _STEPS) + 100
        self._bytes = 2 * size + _LONGEST_TEXT
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_TEXT)
        database.set_progress_handler(self._is_spent, _STEPS)
        database.text_factory = self._text

    def _is_spent(self) -> bool:
        self._steps -= 1
        return self._steps < 0 or self._bytes < 0

    def _text(self, raw: bytes) -> str:
        self.take(len(raw))
        return raw.decode("utf-8", "replace")

    def take(self, count: int) -> None:
        """Count bytes of a text or a blob."""
        self._bytes -= count
        if self._bytes < 0:
            raise ValueError("its tables hold more text than the file has bytes")


@dataclass(frozen=True, slots=True)
class Export:
    """An open export with the names of its tables and their columns."""

    database: sqlite3.Connection
    tables: dict[str, frozenset[str]]
    limits: _Limits

    @staticmethod
    def of(database: sqlite3.Connection, size: int) -> Export:
        """Look at plain tables only: a view or a virtual table could hold anything."""
        limits = _Limits(database, size)
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'create virtual%'"
        names = [name for (name,) in database.execute(query) if isinstance(name, str) and _KNOWN.match(name)]
        columns = {name: frozenset(row[1] for row in database.execute(f'PRAGMA table_info("{name}")')) for name in names}
        return Export(database, columns, limits)

    def table(self, name: str) -> str | None:
        """The newest version of a table (`NVTX_EVENTS_V2` before `NVTX_EVENTS`), None when there is none."""
        found = [each for each in self.tables if each == name or re.fullmatch(rf"{name}_V\d+", each)]
        return max(found, key=lambda each: (len(each), each), default=None)

    def rows(self, name: str, *wanted: str, where: str = "true") -> Iterator[tuple[Any, ...]]:
        """Columns of a table, null for those it lacks; nothing when there is no such table."""
        table = self.table(name)
        if table is not None:
            for row in self.database.execute(self._query(table, wanted, where)):
                if bytes in map(type, row):
                    self.limits.take(sum(len(value) for value in row if isinstance(value, bytes)))
                yield row

    def integers(self, name: str, *wanted: str) -> tuple[Integers, ...]:
        """Columns of a table as int64, -1 for what is null or no integer; a few thousand rows at a time are Python's."""
        table = self.table(name)
        parts: list[Integers] = []
        cursor = self.database.execute(self._query(table, wanted, "true", _INTEGER)) if table else None
        while cursor is not None and (rows := cursor.fetchmany(_ROWS)):
            cells = [value if abs(value) < _MOST else -1 for row in rows for value in row]
            parts.append(np.array(cells, dtype=np.int64).reshape(-1, len(wanted)))
        whole = np.concatenate(parts) if parts else np.empty((0, len(wanted)), dtype=np.int64)
        return tuple(whole.T)

    def _query(self, table: str, wanted: tuple[str, ...], where: str, form: str = '"{0}"') -> str:
        is_there = self.tables[table]
        missing = "-1" if form == _INTEGER else "NULL"
        listed = ", ".join(form.format(column) if column in is_there else missing for column in wanted)
        return f'SELECT {listed} FROM "{table}" WHERE {where}'
