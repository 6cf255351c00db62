"""Operations of a large case in a narrow table: texts as codes, no column that nobody fills, and a view that shows all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

import numpy as np

from forensics.case.database import CALL_STORE, Connection, schema_columns
from forensics.case.insertion import Codes, insert_columns
from forensics.ingest._shared.packed import Packed, is_coded

_CALLS = "operations"
# What is written to after the last row came, what says which rows, and what DuckDB leaves calls out by where it is null in all.
_ALWAYS = (
    *("source_id", "rank", "snapshot", "record_id", "enqueued_ns", "call_path", "communicator"),
    *("group_call", "duration_ns"),
)
# Texts that rules choose rows by: a code would have to be looked up for each row, and DuckDB reads a text once for many rows.
_AS_TEXT = frozenset({"communicator", "backend", "kind", "state", "input_sizes"})

_columns: WeakKeyDictionary[Connection, Mapping[str, str]] = WeakKeyDictionary()
"""Of cases whose operations are a view: the expression of each column over the table below it."""


class CallStore:
    """Writes operations as codes of one dictionary for each column, and makes the view once all are there."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._types = schema_columns()[_CALLS]
        self._codes: dict[str, Codes] = {}
        self._stored: list[str] = []

    def insert(self, columns: Mapping[str, Sequence[Packed]]) -> None:
        """Add rows, each column in the parts in which it came."""
        self._make_room(columns)
        kept = {name: self._codes.setdefault(name, {None: 0}) for name in columns if self._is_code(name)}
        insert_columns(self._connection, CALL_STORE, columns, self._types, kept)

    def finish(self) -> None:
        """Put the view in the place of the table, if there are any operations."""
        if not self._stored:
            return
        shown = {name: self._shown(name) for name in self._types}
        listed = ", ".join(f'{expression} AS "{name}"' for name, expression in shown.items())
        self._connection.execute(f"DROP TABLE {_CALLS}; CREATE VIEW {_CALLS} AS SELECT {listed} FROM {CALL_STORE}")
        _columns[self._connection] = shown

    def _make_room(self, names: Mapping[str, object]) -> None:
        """Make the table, and its columns as they come."""
        wanted = [name for name in self._types if name in names or name in _ALWAYS]
        new = {name: "INTEGER" if self._is_code(name) else self._types[name] for name in wanted if name not in self._stored}
        if not self._stored:
            listed = ", ".join(f'"{name}" {kind}' for name, kind in new.items())
            self._connection.execute(f"CREATE TABLE {CALL_STORE} ({listed})")
        else:
            for name, kind in new.items():
                self._connection.execute(f'ALTER TABLE {CALL_STORE} ADD COLUMN "{name}" {kind}')
        self._stored += new

    def _is_code(self, name: str) -> bool:
        return is_coded(self._types[name]) and name not in _AS_TEXT

    def _shown(self, name: str) -> str:
        """The value of a column of the view: 0 is the code of no word, and what follows the last word of a list is null."""
        if name not in self._stored:
            return f"NULL::{self._types[name]}"
        if not self._is_code(name):
            return f'{CALL_STORE}."{name}"'
        words = [word for word in self._codes[name] if word is not None]
        if not words:
            return "NULL::VARCHAR"
        self._connection.register("incoming_words", {"word": np.array(words, dtype=object)})
        self._connection.execute(f"CREATE TYPE {name}_words AS ENUM (SELECT word FROM incoming_words)")
        self._connection.unregister("incoming_words")
        return f'enum_range(NULL::{name}_words)[{CALL_STORE}."{name}"]'


def calls_table(connection: Connection) -> str:
    """The table that the operations of a case are in, which can be written to where `operations` is a view."""
    return CALL_STORE if connection in _columns else _CALLS


def call_column(connection: Connection, name: str) -> str:
    """The expression for a column of operations in a statement that writes to their table."""
    return _columns[connection][name] if connection in _columns else f"{_CALLS}.{name}"
