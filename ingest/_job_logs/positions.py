"""Rows of `log_positions`: what the last line of a process says of one of its communicators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from forensics.ingest.interface import Batch


@dataclass(slots=True)
class LogPosition:
    """One row while it is being read; the columns of the table without those that the artefact gives.

    `label` is what stood in front of its lines: it becomes the rank when the whole file shows which rank it is.
    """

    locator: int
    origin: str
    time_ns: int | None = None
    host: str | None = None
    pid: int | None = None
    rank: int | None = None
    group_rank: int | None = None
    size: int | None = None
    communicator: str | None = None
    init: str | None = None
    enqueued: int | None = None
    started: int | None = None
    completed: int | None = None
    timed_out: int | None = None
    kind: str | None = None
    count: int | None = None
    dtype: str | None = None
    gpu: str | None = None
    is_p2p: bool = False
    label: str | None = None


def batch(positions: Iterable[LogPosition], ranks: Mapping[str, int], host: str | None, only_rank: int | None) -> Batch | None:
    """The rows, in the order of the file, or None without any.

    `ranks` gives the rank of each label. `only_rank` is the rank the file belongs to; `host` that of the artefact, for lines
    that name none.
    """
    rows = list(positions)
    for row in rows:
        if row.rank is None:
            row.rank = ranks.get(row.label or "", only_rank)
        row.host = row.host or host
    names = [field.name for field in fields(LogPosition) if field.name != "label"]
    columns: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in names}
    return Batch("log_positions", columns) if rows else None
