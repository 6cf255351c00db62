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


@dataclass(frozen=True, slots=True)
class Export:
    """An open export with the names of its tables and their columns."""

    database: sqlite3.Connection
    tables: dict[str, frozenset[str]]

    @staticmethod
    def of(database: sqlite3.Connection) -> Export:
        """Look at plain tables only: a view could hold anything."""
        names = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if isinstance(name, str) and '"' not in name
        ]
        columns = {name: frozenset(row[1] for row in database.execute(f'PRAGMA table_info("{name}")')) for name in names}
        return Export(database, columns)

    def table(self, name: str) -> str | None:
        """The newest version of a table (`NVTX_EVENTS_V2` before `NVTX_EVENTS`), None when there is none."""
        found = [each for each in self.tables if each == name or re.fullmatch(rf"{name}_V\d+", each)]
        return max(found, key=lambda each: (len(each), each), default=None)

    def rows(self, name: str, *wanted: str, where: str = "true") -> Iterator[tuple[Any, ...]]:
        """Columns of a table, null for those it lacks; nothing when there is no such table."""
        table = self.table(name)
        if table is not None:
            yield from self.database.execute(self._query(table, wanted, where))

    def integers(self, name: str, *wanted: str) -> tuple[Integers, ...]:
        """Columns of a table as int64, -1 for what is null or no integer; a few thousand rows at a time are Python's."""
        table = self.table(name)
        parts: list[Integers] = []
        cursor = self.database.execute(self._query(table, wanted, "true")) if table else None
        while cursor is not None and (rows := cursor.fetchmany(_ROWS)):
            cells = [value if isinstance(value, int) and abs(value) < _MOST else -1 for row in rows for value in row]
            parts.append(np.array(cells, dtype=np.int64).reshape(-1, len(wanted)))
        whole = np.concatenate(parts) if parts else np.empty((0, len(wanted)), dtype=np.int64)
        return tuple(whole.T)

    def _query(self, table: str, wanted: tuple[str, ...], where: str) -> str:
        listed = ", ".join(f'"{column}"' if column in self.tables[table] else "NULL" for column in wanted)
        return f'SELECT {listed} FROM "{table}" WHERE {where}'
