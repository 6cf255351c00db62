"""Opens the DuckDB database of a case: in memory, as a new file, or a copy of one written before."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any
from weakref import WeakKeyDictionary

import duckdb

from forensics.case.describe import tables
from forensics.errors import ExitCode, ForensicsError

VIEWS = ("capture", "device_event", "latest_call", "logged_event", "ordered_call", "position", "traced_call")
"""Views of a case, in `views/`, in the order in which they are made."""
# Files are written in the format of the oldest supported release, else a newer DuckDB writes what an older cannot open.
STORAGE_VERSION = "v1.0.0"
_MAGIC = b"DUCK"
# In memory DuckDB stores rows as they are, 400 bytes for each operation; in a file it compresses them.
LARGE_BYTES = 64 << 20
SMALL_BYTES = 4 << 20
"""Below it, sharing the work among threads takes longer than the work."""
_MEMORY_PER_CORE = 256 << 20
_LEAST_MEMORY, _MOST_MEMORY = 384 << 20, 4 << 30
# Tried for every text column and hardly ever chosen, for texts are few and repeated; a third of the time of an insertion.
_SLOW_COMPRESSION = "fsst,zstd,dict_fsst"
# Of few rows, any plan is done before a better one is found: only what keeps a join from being a product is asked for.
_NEEDED_OPTIMIZERS = "'filter_pushdown', 'deliminator', 'unused_columns', 'expression_rewriter'"
_OTHER_OPTIMIZERS = f"SELECT string_agg(name, ',') FROM duckdb_optimizers() WHERE name NOT IN ({_NEEDED_OPTIMIZERS})"
_scratch: list[TemporaryDirectory[str]] = []
# Base tables only: a view of the same name in a file from elsewhere would run its query.
_COLUMNS = """
SELECT table_name, column_name, data_type FROM duckdb_columns() JOIN duckdb_tables() USING (database_oid, table_oid, table_name)
WHERE duckdb_columns.database_name = ? AND NOT duckdb_columns.internal ORDER BY table_name, column_index
"""
CALL_STORE = "stored_operations"
"""The table below the view `operations` of a large case."""
_FEW = 20_000
# Where there are few calls, planning the views anew with each query takes longer than the query; where there are many, each of
# them would look for the newest dumps again.
_KEPT_OF_FEW, _KEPT_OF_MANY = ("capture", "latest_call", "ordered_call", "position"), ("capture",)
_READ_ONLY = "BEGIN TRANSACTION READ ONLY"
_OFFLINE = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}

Connection = duckdb.DuckDBPyConnection


@dataclass(frozen=True, slots=True)
class _Content:
    """Tables that have rows; for those whose queries ask for few kinds of rows each, the kinds that there are."""

    tables: frozenset[str]
    kinds: Mapping[str, frozenset[str | None]]
    has_few_calls: bool


_contents: WeakKeyDictionary[Connection, _Content] = WeakKeyDictionary()
"""Of cases that are only read at the moment: asked once, not by every query that may be saved."""
_KIND_COLUMNS = {"device_events": "kind", "log_events": "kind", "sources": "kind", "operations": "kind", "job_config": "key"}
"""The column that shows what kind a row of these tables is of."""


def new_case(path: Path | None = None, expected_bytes: int = 0) -> Connection:
    """An empty case with all tables of schema.sql, in memory or in a new file that must not exist yet.

    A case in memory whose sources are large lies in a temporary file instead, which is removed when the process ends.
    """
    if path is not None and path.exists():
        raise ForensicsError(f"{path}: already exists; a case is built anew, remove it first", ExitCode.USAGE)
    is_large = expected_bytes >= LARGE_BYTES
    is_small = expected_bytes < SMALL_BYTES
    threads = {"threads": 1} if is_small else {}
    try:
        place = path or (_scratch_file(expected_bytes) if is_large else None)
        connection = duckdb.connect(
            ":memory:" if place is None else str(place),
            config={**_OFFLINE, "storage_compatibility_version": STORAGE_VERSION, **threads},
        )
    except (duckdb.Error, OSError) as error:
        raise ForensicsError(f"{path}: the case cannot be created: {_first_line(error)}") from error
    if is_large and place is not None:
        connection.execute(f"SET memory_limit = '{_memory_limit() >> 20}MiB'")
        connection.execute(f"SET disabled_compression_methods = '{_SLOW_COMPRESSION}'")
    if is_small:
        connection.execute(f"SET disabled_optimizers = '{_other_optimizers(connection)}'")
    connection.execute(f"BEGIN; {schema()} {views()} COMMIT")
    return connection


def _other_optimizers(connection: Connection) -> str:
    ((names,),) = connection.execute(_OTHER_OPTIMIZERS).fetchall()
    return str(names)


def _scratch_file(expected_bytes: int) -> Path | None:
    """A place for a large case, None when the disk of temporary files has no room for it."""
    if shutil.disk_usage(gettempdir()).free < expected_bytes:
        return None
    folder = TemporaryDirectory(prefix="forensics-", ignore_cleanup_errors=True)
    _scratch.append(folder)
    _removed_after_us(folder.name)
    return Path(folder.name) / "case.duckdb"


def _removed_after_us(folder: str) -> None:
    """Start a shell that removes the folder once this process has ended, however it ended: its end closes the pipe."""
    reading, _writing = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, reading, 0), (os.POSIX_SPAWN_CLOSE, _writing)]
    os.posix_spawn(
        "/bin/sh", ["sh", "-c", 'read -r _; rm -rf -- "$0"', folder], {"PATH": os.defpath}, file_actions=actions, setsid=True
    )
    os.close(reading)


def _memory_limit() -> int:
    """Bytes DuckDB may hold before it writes to its file: each of its threads needs some."""
    return max(_LEAST_MEMORY, min((os.cpu_count() or 1) * _MEMORY_PER_CORE, _MOST_MEMORY))


def has_rows(connection: Connection, table: str, kinds: Collection[str] = ()) -> bool:
    """Whether a table has any row, of one of these kinds if any are given; most tables of a case have none."""
    content = _contents.get(connection)
    if content is None or table not in schema_columns():
        among, asked = (f"WHERE list_contains(?, {_KIND_COLUMNS[table]})", [list(kinds)]) if kinds else ("", None)
        return bool(connection.execute(f"SELECT 1 FROM {table} {among} LIMIT 1", asked).fetchall())
    return table in content.tables and (not kinds or not content.kinds[table].isdisjoint(kinds))


def kinds_of(connection: Connection, table: str) -> tuple[str, ...]:
    """The kinds of rows that a table has, in order."""
    content = _contents.get(connection)
    found = _kinds(connection, table) if content is None else content.kinds[table]
    return tuple(sorted(kind for kind in found if kind is not None))


def rows_of(
    connection: Connection, table: str, query: str, parameters: object = None, kinds: Collection[str] = ()
) -> list[tuple[Any, ...]]:
    """The rows of a query that has none while `table` has none, of these kinds if any are given.

    DuckDB takes milliseconds to plan what comes to nothing.
    """
    return connection.execute(query, parameters).fetchall() if has_rows(connection, table, kinds) else []


def only_row(connection: Connection, table: str, query: str, kinds: Collection[str] = ()) -> tuple[Any, ...] | None:
    """The row of a query that has one; None where it has none or several."""
    rows = rows_of(connection, table, query, kinds=kinds)
    return rows[0] if len(rows) == 1 else None


def few_calls(connection: Connection) -> bool:
    """Whether there are so few operations that planning a query takes longer than reading all of them."""
    content = _contents.get(connection)
    return _has_few_calls(connection) if content is None else content.has_few_calls


def _has_few_calls(connection: Connection) -> bool:
    ((count,),) = connection.execute(f"SELECT count(*) FROM (SELECT 1 FROM operations LIMIT {_FEW})").fetchall()
    return bool(count < _FEW)


def filled_tables(connection: Connection) -> frozenset[str]:
    """The tables of schema.sql that have rows, by two queries: asking each of many tables takes longer."""
    # The estimate counts rows that were deleted too: of tables that never had any it is exact.
    estimates = "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database() AND estimated_size > 0"
    estimated = {name for (name,) in connection.execute(estimates).fetchall()}
    written = ({"operations", *estimated} if CALL_STORE in estimated else estimated) & schema_columns().keys()
    each = " UNION ALL ".join(f"(SELECT '{table}' FROM {table} LIMIT 1)" for table in sorted(written))
    return frozenset(table for (table,) in connection.execute(each).fetchall()) if written else frozenset()


def _content(connection: Connection) -> _Content:
    tables = filled_tables(connection)
    kinds = {table: _kinds(connection, table) if table in tables else frozenset[str | None]() for table in _KIND_COLUMNS}
    return _Content(tables, kinds, "operations" not in tables or _has_few_calls(connection))


def _kinds(connection: Connection, table: str) -> frozenset[str | None]:
    rows = connection.execute(f"SELECT DISTINCT {_KIND_COLUMNS[table]} FROM {table}").fetchall()
    return frozenset(kind for (kind,) in rows)


@contextmanager
def read_only(connection: Connection) -> Iterator[None]:
    """While it lasts the tables of the case cannot be written; temporary tables can, and are gone afterwards."""
    content = _contents[connection] = _content(connection)
    connection.execute(_READ_ONLY)
    if "operations" in content.tables:
        kept = _KEPT_OF_FEW if few_calls(connection) else _KEPT_OF_MANY
        connection.execute("".join(f"CREATE TEMP TABLE {view} AS SELECT * FROM main.{view};" for view in kept))
    try:
        yield
    finally:
        del _contents[connection]
        connection.execute("ROLLBACK")


@contextmanager
def recovering(connection: Connection) -> Iterator[None]:
    """Within `read_only`: what fails aborts the transaction, so another one begins for whatever comes next."""
    try:
        yield
    except Exception:
        connection.execute(f"ROLLBACK; {_READ_ONLY}")
        raise


def existing_case(path: Path) -> Connection:
    """A copy in memory of a case written before: it can be worked on, and the file stays as it was.

    Refused when a table of schema.sql is missing or lacks a column. Views and macros in the file are not taken over.
    """
    connection = new_case(expected_bytes=path.stat().st_size)
    wanted = schema_columns()
    literal = str(path).replace("'", "''")
    try:
        connection.execute(f"ATTACH '{literal}' AS stored (READ_ONLY)")
        found = table_columns(connection, "stored")
        missing = [f"{table}.{name}" for table in wanted for name in wanted[table] if name not in found.get(table, {})]
        if not missing:
            for table, columns in wanted.items():
                names = ", ".join(f'"{name}"' for name in columns)
                connection.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM stored.{table}")
        connection.execute("DETACH stored")
    except duckdb.Error as error:
        raise ForensicsError(f"{path}: the case cannot be opened: {_first_line(error)}") from error
    if missing:
        raise ForensicsError(f"{path}: not a case of this version: {missing[0]} is missing; build it from the bundle again")
    return connection


def is_case_file(path: Path) -> bool:
    """Whether a file is a DuckDB database, by its content."""
    if not path.is_file():
        return False  # opening a pipe waits for whoever writes to it
    try:
        with path.open("rb") as stream:
            return stream.read(12)[8:] == _MAGIC
    except OSError:
        return False


def schema() -> str:
    """The SQL that makes the tables of a case."""
    return files("forensics.case").joinpath("schema.sql").read_text(encoding="utf-8")


def views() -> str:
    """The SQL that makes the views of a case, each after those that it reads."""
    folder = files("forensics.case").joinpath("views")
    return "\n".join(folder.joinpath(f"{name}.sql").read_text(encoding="utf-8") for name in VIEWS)


@cache
def schema_columns() -> dict[str, dict[str, str]]:
    """SQL type of each column of each table, as schema.sql says."""
    return {table.name: {column.name: column.type for column in table.columns} for table in tables(schema())}


def insert_rows(connection: Connection, table: str, columns: str, rows: list[tuple[object, ...]]) -> None:
    """Add rows to a table; `columns` names their values, in one word each."""
    import numpy as np

    if not rows:
        return
    names = columns.split()
    batch = {name: np.array([row[i] for row in rows], dtype=object) for i, name in enumerate(names)}
    connection.register("rows_to_insert", batch)
    listed = ", ".join(names)
    connection.execute(f"INSERT INTO {table} ({listed}) SELECT {listed} FROM rows_to_insert")
    connection.unregister("rows_to_insert")


def table_columns(connection: Connection, database: str = "memory") -> dict[str, dict[str, str]]:
    """SQL type of each column of each table that a database has."""
    rows = connection.execute(_COLUMNS, [database]).fetchall()
    tables: dict[str, dict[str, str]] = {}
    for table, column, kind in rows:
        tables.setdefault(table, {})[column] = kind
    return tables


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
