"""The rows of a table of epochs in a file: lines of CSV, or a Parquet file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import duckdb

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import Lines, read_document
from forensics.ingest.interface import Identity, Item, Problem
from forensics.ingest.nic_epochs import pair_map, table
from forensics.ingest.nic_epochs.table import SETTINGS

PARQUET = b"PAR1"
_SEPARATORS = ",;\t"
_AT_A_TIME = 1 << 14


def is_csv(head: bytes) -> bool:
    """Whether the first line that is no remark names the columns of epochs, or of a map of queue pairs."""
    if b"\0" in head:
        return False
    lines = head.decode("utf-8-sig", "replace").splitlines()
    first = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    return not first.startswith("{") and _of(_names(first)) is not None


def csv_items(artefact: Artefact) -> Iterator[Item]:
    """Of lines: remarks `# name=value`, the names of the columns, then one row a line."""
    lines = iter(source := Lines(artefact))
    said: dict[str, Any] = {}
    for _, line in lines:
        if line.startswith(("#", "\ufeff#")):
            name, _, value = line.lstrip("\ufeff# ").partition("=")
            said |= {name.strip(): value.strip()} if name.strip() in SETTINGS else {}
        elif line.strip():
            names = _names(line.lstrip("\ufeff"))
            separator = _separator(line)
            yield from _identity(said)
            items = _of(names) or table.items
            yield from items(names, ((f"line={at}", row.split(separator)) for at, row in lines if row.strip()), said)
            break
    if source.problem is not None:
        yield source.problem


def _of(
    names: Sequence[str],
) -> Callable[[Sequence[str], Iterable[tuple[str, Sequence[Any]]], Mapping[str, Any]], Iterator[Item]] | None:
    """What reads the rows below columns with these names."""
    if table.is_table(names):
        return table.items
    return pair_map.items if pair_map.is_map(names) else None


def _separator(line: str) -> str:
    return next((mark for mark in _SEPARATORS if mark in line), ",")


def _names(line: str) -> list[str]:
    return [name.strip().strip('"').lower() for name in line[:4096].split(_separator(line))]


def _identity(said: dict[str, Any]) -> Iterator[Identity]:
    rank, host = str(said.get("rank", "")), said.get("host") or None
    if rank.isdecimal() or host:
        yield Identity(rank=int(rank) if rank.isdecimal() and len(rank) < 10 else None, host=host)


def parquet_items(artefact: Artefact) -> Iterator[Item]:
    """Of a Parquet file with these columns; any other one is of no use here."""
    content = read_document(artefact)
    if isinstance(content, Problem):
        yield content
        return
    with tempfile.NamedTemporaryFile(suffix=".parquet") as copy, duckdb.connect() as connection:
        copy.write(content)
        copy.flush()
        try:
            found = connection.execute("SELECT * FROM read_parquet(?)", [copy.name])
            names = [column[0].lower() for column in found.description or ()]
            items = _of(names)
            if items is None:
                yield Problem("a Parquet file without columns of NIC epochs; not read", "byte=0", fatal=True)
                return
            yield from items(names, _fetched(found), {})
        except duckdb.Error as error:
            yield Problem(f"cannot be read as Parquet: {str(error).splitlines()[0][:200]}", "byte=0", fatal=True)


def _fetched(found: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, Sequence[Any]]]:
    number = 0
    while batch := found.fetchmany(_AT_A_TIME):
        for row in batch:
            number += 1
            yield f"row={number}", row
