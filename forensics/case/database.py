"""Opens the DuckDB database of a case: in memory, as a new file, or a copy of one written before."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import duckdb

from forensics.errors import ExitCode, ForensicsError

# Files are written in the format of the oldest supported release, else a newer DuckDB writes what an older cannot open.
STORAGE_VERSION = "v1.0.0"
_MAGIC = b"DUCK"
# Base tables only: a view of the same name in a file from elsewhere would run its query.
_COLUMNS = """
SELECT table_name, column_name, data_type FROM duckdb_columns() JOIN duckdb_tables() USING (database_oid, table_oid, table_name)
WHERE duckdb_columns.database_name = ? AND NOT duckdb_columns.internal ORDER BY table_name, column_index
"""
_OFFLINE = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}

Connection = duckdb.DuckDBPyConnection


def new_case(path: Path | None = None) -> Connection:
    """An empty case with all tables of schema.sql, in memory or in a new file that must not exist yet."""
    if path is not None and path.exists():
        raise ForensicsError(f"{path}: already exists; a case is built anew, remove it first", ExitCode.USAGE)
    try:
        connection = duckdb.connect(
            ":memory:" if path is None else str(path), config={**_OFFLINE, "storage_compatibility_version": STORAGE_VERSION}
        )
    except duckdb.Error as error:
        raise ForensicsError(f"{path}: the case cannot be created: {_first_line(error)}") from error
    connection.execute(schema())
    return connection


def existing_case(path: Path) -> Connection:
    """A copy in memory of a case written before: it can be worked on, and the file stays as it was.

    Refused when a table of schema.sql is missing or lacks a column. Views and macros in the file are not taken over.
    """
    connection = new_case()
    wanted = table_columns(connection)
    literal = str(path).replace("'", "''")
    try:
        connection.execute(f"ATTACH '{literal}' AS stored (READ_ONLY)")
        found = _table_columns(connection, "stored")
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
    try:
        with path.open("rb") as stream:
            return stream.read(12)[8:] == _MAGIC
    except OSError:
        return False


def schema() -> str:
    """The SQL that makes the tables of a case."""
    return files("forensics.case").joinpath("schema.sql").read_text(encoding="utf-8")


def table_columns(connection: Connection) -> dict[str, dict[str, str]]:
    """SQL type of each column of each table of the case."""
    ((name,),) = connection.execute("SELECT current_database()").fetchall()
    return _table_columns(connection, name)


def _table_columns(connection: Connection, database: str) -> dict[str, dict[str, str]]:
    rows = connection.execute(_COLUMNS, [database]).fetchall()
    tables: dict[str, dict[str, str]] = {}
    for table, column, kind in rows:
        tables.setdefault(table, {})[column] = kind
    return tables


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
