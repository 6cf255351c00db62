"""Shards as readings. A shard comes from a stranger as any file does: nothing in it is believed before it was looked at."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import duckdb
import numpy as np

from forensics.bundle.artefact import Shard
from forensics.bundle.shards import read_record
from forensics.case.reading import Reading
from forensics.ingest._shared.packed import Packed, PackedBatch, Types, number_column, pack
from forensics.ingest.interface import Identity, Problem

STORED = {"BIGINT": "BIGINT", "INTEGER": "BIGINT", "DOUBLE": "DOUBLE", "BOOLEAN": "BOOLEAN"}
"""Type of a column in Parquet by its type in the case; all others are VARCHAR."""

MOST_EXPANDED = 4 << 30
"""Bytes that one table of one artefact may expand to: the columns of a trace of 10 GB have a quarter of it."""

MOST_ROWS = 1 << 31
_CELL_BYTES = {"VARCHAR": 16, "BOOLEAN": 1}
"""Bytes of a value beside its text: a dictionary in the file can stand for any number of values, and does not say so."""
_MOST_PROBLEMS = 10_000
_SETTINGS = {
    "threads": "1",
    "memory_limit": "6GB",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


class _Refused(Exception):
    """A part of a shard that is not what a shard has; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """Rows of one table as the record announces them."""

    table: str
    rows: int
    columns: tuple[str, ...]


def stored_type(kind: str) -> str:
    """The type in Parquet of a column of a SQL type."""
    return STORED.get(kind, "VARCHAR")


def connect() -> duckdb.DuckDBPyConnection:
    """A database in memory that reads or writes Parquet with one thread and loads nothing."""
    return duckdb.connect(":memory:", config=dict(_SETTINGS))


def read_shard(shard: Shard, types: Mapping[str, Types]) -> Reading:
    """The reading that was kept; a part that cannot be used is a problem, and the others are still used."""
    record = read_record(shard.reading)
    parser, kind = (value if isinstance(value := record.get(key), str) else None for key in ("parser", "kind"))
    if parser is None or kind is None:
        return Reading("shard", "shard", problems=[Problem("its record is of another form: nothing of it is used", fatal=True)])
    problems = list(_problems(record.get("problems")))
    tables: dict[str, Mapping[str, Packed]] = {}
    batches: list[PackedBatch] = []
    announced = _announced(record.get("batches"), types, problems)
    for table in dict.fromkeys(one.table for one in announced):
        own = [one for one in announced if one.table == table]
        try:
            tables[table] = _table(shard.tables.get(table), own, types[table])
        except (_Refused, OSError, duckdb.Error, MemoryError, ValueError) as error:
            problems.append(Problem(f"the columns for {table} are left out: {_words(error)}"))
    starts = dict.fromkeys(tables, 0)
    for one in announced:
        if one.table in tables:
            begin = starts[one.table]
            starts[one.table] = end = begin + one.rows
            batches.append(PackedBatch(one.table, {name: _part(tables[one.table][name], begin, end) for name in one.columns}))
    return Reading(parser, kind, batches, problems, _identity(record.get("identity")))


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _announced(value: Any, types: Mapping[str, Types], problems: list[Problem]) -> list[_Batch]:
    """Batches that a case has a place for."""
    found: list[_Batch] = []
    for row in value if isinstance(value, list) else ():
        said = row if isinstance(row, dict) else {}
        table, rows, columns = str(said.get("table")), said.get("rows"), said.get("columns")
        listed = [str(name) for name in columns] if isinstance(columns, list) else []
        if table not in types or not listed or not set(listed) <= types[table].keys():
            problems.append(Problem(f"rows for a table or columns that a case does not have: {table[:60]!a}"))
        elif not isinstance(rows, int) or isinstance(rows, bool) or not 0 <= rows < MOST_ROWS:
            problems.append(Problem(f"{table}: the number of its rows is none"))
        else:
            found.append(_Batch(table, rows, tuple(dict.fromkeys(listed))))
    return found


def _table(opened: Callable[[], BinaryIO] | None, batches: Sequence[_Batch], types: Types) -> Mapping[str, Packed]:
    """All rows of one table, by column."""
    names = list(dict.fromkeys(name for one in batches for name in one.columns))
    rows = sum(one.rows for one in batches)
    if not rows:
        return {name: pack([], types[name]) for name in names}
    if opened is None:
        raise _Refused("its file is not there")
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        with opened() as stream:
            shutil.copyfileobj(stream, file, 1 << 20)
        file.flush()
        with connect() as connection:
            _check(connection, file.name, names, rows, types)
            _measure(connection, file.name, names, rows, types)
            listed = ", ".join(f'"{name}"' for name in names)
            found = connection.execute(f"SELECT {listed} FROM read_parquet(?)", [file.name]).fetchnumpy()
    return {name: _packed(found[name], types[name], rows) for name in names}


def _check(connection: duckdb.DuckDBPyConnection, path: str, names: Sequence[str], rows: int, types: Types) -> None:
    """Raise when the file is not what was announced; only its footer is read for that."""
    ((count, size),) = connection.execute(
        """SELECT (SELECT sum(num_rows) FROM parquet_file_metadata(?)),
            (SELECT sum(greatest(total_uncompressed_size, 0)) FROM parquet_metadata(?))""",
        [path, path],
    ).fetchall()
    if count != rows:
        raise _Refused(f"{count} rows where {rows} were announced")
    if size is None:
        raise _Refused("their size is not stated")
    _refuse_beyond(size)
    described = connection.execute("DESCRIBE SELECT * FROM read_parquet(?)", [path]).fetchall()
    there = {str(row[0]): str(row[1]) for row in described}
    for name in names:
        if there.get(name) != stored_type(types[name]):
            raise _Refused(f"{name} is {there.get(name, 'not there')[:60]}, not {stored_type(types[name])}")


def _measure(connection: duckdb.DuckDBPyConnection, path: str, names: Sequence[str], rows: int, types: Types) -> None:
    """Raise when the values would take too much; texts are measured one block after the other, before any is kept."""
    kinds = {name: stored_type(types[name]) for name in names}
    _refuse_beyond(rows * sum(_CELL_BYTES.get(kind, 8) for kind in kinds.values()))
    for name in (name for name, kind in kinds.items() if kind == "VARCHAR"):
        ((size,),) = connection.execute(f'SELECT sum(strlen("{name}")) FROM read_parquet(?)', [path]).fetchall()
        _refuse_beyond(size or 0)


def _refuse_beyond(size: int) -> None:
    if size > MOST_EXPANDED:
        raise _Refused(f"they expand to {size} bytes, more than {MOST_EXPANDED}")


def _packed(values: Any, kind: str, rows: int) -> Packed:
    if len(values) != rows:
        raise _Refused(f"{len(values)} rows came where {rows} were announced")
    if stored_type(kind) == "VARCHAR":
        return pack(values.tolist(), "VARCHAR")
    return number_column(np.ma.getdata(values), np.ma.getmaskarray(values))


def _part(column: Packed, begin: int, end: int) -> Packed:
    """The column as it is where the batch is the whole table."""
    if begin == 0 and end == column.length:
        return column
    return column.taken(range(begin, end))


def _problems(value: Any) -> list[Problem]:
    rows = [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
    found = []
    for row in rows[:_MOST_PROBLEMS]:
        message, locator = row.get("message"), row.get("locator")
        if isinstance(message, str):
            found.append(Problem(message, locator if isinstance(locator, str) else None))
    return found


def _identity(value: Any) -> Identity:
    rank, host = (value.get("rank"), value.get("host")) if isinstance(value, dict) else (None, None)
    is_rank = isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < 1 << 31
    return Identity(rank if is_rank else None, host if isinstance(host, str) else None)
