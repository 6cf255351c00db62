"""Small cases of one process as databases of one DuckDB: an instance and a schema of its own are half the time of a small case.

What a case sees is the same: tables, views and settings of `forensics.case.database`, and its own temporary tables.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from pathlib import Path
from weakref import finalize

import duckdb

from forensics.case import database

_SMALL_BYTES = 1 << 20
_numbers = count()


def new_case(path: Path | None = None, expected_bytes: int = 0) -> database.Connection:
    """As `forensics.case.database.new_case`: what has a file of its own, or is large, is made by it."""
    if path is not None or expected_bytes >= min(_SMALL_BYTES, database.LARGE_BYTES):
        return database.new_case(path, expected_bytes)
    name = f"case_{next(_numbers)}"
    connection = _instance().cursor()
    connection.execute(f"ATTACH ':memory:' AS {name}; COPY FROM DATABASE memory TO {name}; USE {name}")
    finalize(connection, _instance().execute, f"DETACH {name}")
    return connection


@cache
def _instance() -> duckdb.DuckDBPyConnection:
    """An empty case, which all others are copies of."""
    return database.new_case()
