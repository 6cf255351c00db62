"""What a text says of which rank a process is, as rows of `process_ranks`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from forensics.ingest.interface import Batch


class ProcessRank(NamedTuple):
    """One row, with the columns of the table; without a process it is of the only one of its host."""

    method: str
    host: str | None = None
    pid: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    node: int | None = None
    per_node: int | None = None


def process_rank_batches(rows: Iterable[ProcessRank]) -> Iterator[Batch]:
    """One batch, or none without rows; host and rank are those of the rows alone, never those of the artefact."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    if columns:
        yield Batch("process_ranks", dict(zip(ProcessRank._fields, columns, strict=True)))
