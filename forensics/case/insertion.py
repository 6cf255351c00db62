"""Inserts packed columns into a table of a case: numbers as arrays, texts as codes into a list of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from forensics.case.database import Connection
from forensics.ingest._shared.packed import Array, Packed, Types, is_coded, joined_numbers, joined_texts

Codes = dict[str | None, int]
"""Number of each word."""
# How often a word must come on average before all are read at once; DuckDB reads lists in a list sixteen times as slowly.
_LEAST_TIMES = {False: 2, True: 16}


def insert_columns(
    connection: Connection,
    table: str,
    columns: Mapping[str, Sequence[Packed]],
    types: Types,
    kept: Mapping[str, Codes] = MappingProxyType({}),
) -> None:
    """Add rows, each column in the parts in which it came; `kept` columns stay codes of these words, to which new ones go."""
    # DuckDB finds it by its name in this frame, for half a millisecond less than a table takes that is registered.
    incoming_rows: dict[str, Array] = {}
    words: list[list[str | None]] = []
    cells = []
    for name, parts in columns.items():
        if name in kept:
            incoming_rows[name] = joined_texts(parts, kept[name])
            cells.append(f'"{name}"')
        elif is_coded(types[name]):
            codes: Codes = {}
            incoming_rows[name] = joined_texts(parts, codes)
            words.append(list(codes))
            rows = sum(map(len, parts))
            cells.append(_cell(name, types[name], rows / max(1, len(codes))))
        else:
            incoming_rows[name] = joined_numbers(parts)
            cells.append(f'TRY_CAST("{name}" AS {types[name]})')
    listed = ", ".join(f'"{name}"' for name in columns)
    connection.execute(f"INSERT INTO {table} ({listed}) SELECT {', '.join(cells)} FROM incoming_rows", words)


def _cell(name: str, kind: str, times: float) -> str:
    """The value of a text that comes so many `times`: read in the way that takes less time."""
    is_list = kind.endswith("[]")
    return _read_once(name, kind) if times >= _LEAST_TIMES[is_list] else _read_by_row(name, kind)


def _read_once(name: str, kind: str) -> str:
    """Each word is read once: all ranks of a large job list all of its members."""
    return f'TRY_CAST(?::VARCHAR[] AS {kind}[])["{name}" + 1]'


def _read_by_row(name: str, kind: str) -> str:
    """Words of which hardly any comes again, as the values of epochs: the lists of all at once may not fit in memory."""
    return f'TRY_CAST((?::VARCHAR[])["{name}" + 1] AS {kind})'
