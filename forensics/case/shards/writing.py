"""A bundle in which large artefacts are replaced by what was read of them.

A shard is the reading of one artefact as it goes into a case, so that a verdict rests on the same rows, in the same order.
What the reader could not use as a whole, what is damaged, what describes the collection, and what would not become smaller
stays as it is.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import orjson

import forensics
from forensics.bundle.artefact import Artefact
from forensics.bundle.layout import CHECKSUMS, member_order
from forensics.bundle.members import Member
from forensics.bundle.reader import open_bundle
from forensics.bundle.shards import MOST_RECORD_BYTES, SCHEMA, is_part, record_path, table_path
from forensics.bundle.streams import chunks
from forensics.bundle.writer import Content, write_bundle
from forensics.case.database import schema_columns
from forensics.case.reading import Reading, read_packed
from forensics.case.shards.reading import connect, stored_type
from forensics.collect.merging import open_host_bundle
from forensics.ingest._shared.packed import Packed, PackedBatch, Types, missing, pack

LEAST_BYTES = 32 << 10
"""Below this nothing is won: a Parquet file has a kilobyte or two of its own, and there is one for each table."""

_LISTED = ("nodes/", "ranks/", "job/")
# The end of a log is quoted in reports, and a log was cut to a few MiB when it was collected.
_KEPT_KINDS = frozenset({"collection", "training_log"})


@dataclass(frozen=True, slots=True)
class _Folder:
    """Where files lie until they are packed."""

    path: Path
    types: Mapping[str, Types]
    least_bytes: int


def write_normalized(
    source: Path,
    output: Path,
    *,
    replace: bool = False,
    owner: tuple[int, int] | None = None,
    least_bytes: int = LEAST_BYTES,
) -> int:
    """Write the bundle `source` (tar or folder) with shards in place of artefacts of `least_bytes` and more; its size in bytes.

    Raises ForensicsError for what is no bundle, FileExistsError and OSError as `write_bundle` does.
    """
    bundle = open_bundle([source])
    artefacts = {artefact.path: artefact for artefact in bundle.artefacts if artefact.path not in bundle.damaged}
    members = open_host_bundle(source, source.name).members
    with tempfile.TemporaryDirectory(prefix=".forensics-", dir=output.parent) as name:
        folder = _Folder(Path(name), schema_columns(), least_bytes)
        contents: list[Content] = []
        for index, path in enumerate(sorted(members, key=member_order)):
            if path != CHECKSUMS:
                contents += _contents(members[path], artefacts.get(path), folder, index)
        contents.sort(key=lambda content: member_order(content.path))
        return write_bundle(output, contents, replace=replace, owner=owner)


def _contents(member: Member, artefact: Artefact | None, folder: _Folder, index: int) -> list[Content]:
    """The shard of a member, else the member itself."""
    if artefact is not None and member.stored_bytes >= folder.least_bytes and _may_be_a_shard(member.path):
        reading = read_packed(artefact, folder.types)
        shard = list(_shard(artefact, reading, folder, index)) if _is_whole(reading, folder.types) else []
        if shard and (sum(_size(each) for each in shard) < member.stored_bytes or not folder.least_bytes):
            return shard
    return [raw_content(member, folder.path, index)]


def _may_be_a_shard(path: str) -> bool:
    return path.startswith(_LISTED) and not is_part(path) and "#" not in path


def _is_whole(reading: Reading, types: Mapping[str, Types]) -> bool:
    """Whether all of a reading can be kept: a fatal problem leaves the artefact to whoever reads it with more patience."""
    if reading.parser is None or reading.kind in _KEPT_KINDS or any(problem.fatal for problem in reading.problems):
        return False
    return all(batch.table in types and batch.columns.keys() <= types[batch.table].keys() for batch in reading.batches)


def _size(content: Content) -> int:
    return len(content.source) if isinstance(content.source, bytes) else content.source.stat().st_size


def raw_content(member: Member, folder: Path, index: int) -> Content:
    """A member as it is, copied to `folder` where it is no file of its own."""
    seconds = (member.modified_ns or 0) // 1_000_000_000
    if member.location is not None:
        return Content(member.path, Path(member.location), seconds)
    copy = folder / f"{index}.raw"
    with copy.open("wb") as target, member.open_raw() as stream:
        for chunk in chunks(stream):
            target.write(chunk)
    return Content(member.path, copy, seconds)


def _shard(artefact: Artefact, reading: Reading, folder: _Folder, index: int) -> Iterator[Content]:
    """The record and one file for each table; nothing where the record would be refused for its length."""
    batches = [PackedBatch(batch.table, _columns(batch.columns, folder.types[batch.table])) for batch in reading.batches]
    batches = [batch for batch in batches if batch.columns]
    record = orjson.dumps(_record(artefact, reading, batches))
    if len(record) > MOST_RECORD_BYTES:
        return
    yield Content(record_path(artefact.path), record)
    with connect() as connection:
        for table in dict.fromkeys(batch.table for batch in batches):
            own = [batch for batch in batches if batch.table == table]
            if any(_rows(batch) for batch in own):
                place = folder.path / f"{index}.{table}.parquet"
                _write(connection, place, own, folder.types[table])
                yield Content(table_path(artefact.path, table), place)


def _columns(columns: Mapping[str, Sequence[object] | Packed], types: Types) -> dict[str, Packed]:
    return {name: pack(values, types[name]) for name, values in columns.items()}


def _rows(batch: PackedBatch) -> int:
    return len(next(iter(batch.columns.values())))


def _record(artefact: Artefact, reading: Reading, batches: Sequence[PackedBatch]) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "tool": f"forensics {forensics.__version__}",
        "sha256": artefact.sha256,
        "bytes": artefact.stored_bytes,
        "parser": reading.parser,
        "kind": reading.kind,
        "identity": {"rank": reading.identity.rank, "host": reading.identity.host},
        "problems": [{"message": problem.message, "locator": problem.locator} for problem in reading.problems],
        "batches": [{"table": batch.table, "rows": _rows(batch), "columns": list(batch.columns)} for batch in batches],
    }


def _write(connection: duckdb.DuckDBPyConnection, place: Path, batches: Sequence[PackedBatch], types: Types) -> None:
    """The rows of all batches one after the other, null in columns that a batch does not have."""
    names = [name for name in types if any(name in batch.columns for batch in batches)]
    connection.execute("CREATE OR REPLACE TABLE shard (" + ", ".join(f'"{n}" {stored_type(types[n])}' for n in names) + ")")
    for batch in batches:
        if _rows(batch):
            _insert(connection, batch, names, types)
    connection.execute(f"COPY shard TO '{str(place).replace(chr(39), chr(39) * 2)}' (FORMAT parquet, COMPRESSION zstd)")


def _insert(connection: duckdb.DuckDBPyConnection, batch: PackedBatch, names: Sequence[str], types: Types) -> None:
    joined, words, cells, rows = {}, [], [], _rows(batch)
    for name in names:
        column = batch.columns.get(name) or missing(types[name], rows)
        assert isinstance(column, Packed)
        joined[name] = column.expanded()
        if column.words is None:
            cells.append(f'"{name}"')
        else:
            words.append(list(column.words))
            cells.append(f'(?::VARCHAR[])["{name}" + 1]')
            joined[name] = np.asarray(joined[name], dtype=np.int32)
    connection.register("incoming_rows", joined)
    try:
        connection.execute(f"INSERT INTO shard SELECT {', '.join(cells)} FROM incoming_rows", words)
    finally:
        connection.unregister("incoming_rows")
