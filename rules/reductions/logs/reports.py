"""Operations of which a library that knows all members said who came: Horovod's stalls, barriers, desync reports, an analyzer.

Such a report is written when a limit has passed, so that those who came are known to stand still. Ranks that it names as
missing are known to be; those that it says nothing of may be either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import Family
from forensics.rules.reductions.calls.positions import Communicator, Operation, Position

REPORTED = "report"
"""Unit of a communicator that is one operation: 1 for members that came to it, 0 for those that did not."""
SPOKEN = "line"
"""Unit of an operation of which no library says who came, but the lines of the ranks themselves."""
GAVE_UP = "timeout"
"""Unit of an operation that all ranks gave up waiting in but one."""
BY_RANKS = frozenset({SPOKEN, GAVE_UP})
"""Units of operations of which the ranks themselves tell, and no library that knows all members."""
ONE_OPERATION = frozenset({REPORTED, *BY_RANKS})
"""Units of communicators whose only number, 1, is of no call."""
COUNTED = "collective"
"""Unit of a desync report: collectives of the group, from one."""
_UNITS = {"desync": COUNTED, "milestone": SPOKEN}
_OTHERS = "ranks that are not named"

# Of an id of NCCL that a rank did not receive: one that has begun to set up its own communicator has handed the id out.
_ROWS = """
SELECT p.origin, p.source_id, p.communicator, p.rank, p.size, p.enqueued, p.completed, p.timed_out, p.kind,
       s.path || '#line=' || p.locator
FROM log_positions p JOIN sources s USING (source_id)
WHERE p.origin IN ('desync', 'horovod', 'barrier', 'analysis', 'hccl', 'milestone') AND p.communicator IS NOT NULL
    AND NOT EXISTS (
        SELECT 1 FROM log_positions m
        JOIN log_positions n ON n.origin = 'nccl' AND n.init = 'started' AND coalesce(n.rank, n.group_rank) = m.rank
        WHERE p.communicator = 'ncclUniqueId' AND m.communicator = p.communicator AND m.source_id = p.source_id
            AND m.enqueued = 0)
ORDER BY p.origin, s.path, p.communicator, p.rank
"""


@dataclass(frozen=True, slots=True)
class _Row:
    rank: int | None
    size: int | None
    entered: int
    done: int
    timed_out: int | None
    kind: str | None
    source: str


def reported_operations(connection: DuckDBPyConnection) -> Iterator[Communicator]:
    """One communicator for each operation, or group, that a report speaks of; of one that several logs repeat, each."""
    groups: dict[tuple[str, int, str], list[_Row]] = defaultdict(list)
    for origin, source, name, *values in rows_of(connection, "log_positions", _ROWS):
        groups[origin, source, name].append(_Row(*values))
    labels: set[str] = set()
    for (origin, source, name), rows in groups.items():
        label = name if name not in labels else f"{name} ({source})"
        labels.add(label)
        yield _communicator(label, origin, rows)


def _communicator(label: str, origin: str, rows: Sequence[_Row]) -> Communicator:
    found = {row.rank: _position(row.rank, row) for row in rows if row.rank is not None}
    size = max((row.size or 0 for row in rows), default=0)
    others = {_OTHERS: 1} if any(row.rank is None for row in rows) else {}
    return Communicator(
        label,
        tuple(sorted(found)),
        "read",
        found,
        backend="nccl" if origin == "desync" else "unknown",
        size=max(size, len(found)),
        unit=_UNITS.get(origin, REPORTED),
        nameless=others,
        overdue=True,
    )


def _position(rank: int, row: _Row) -> Position:
    pending = row.timed_out
    operation = Operation(row.kind or "operation", "", None, None, row.source) if pending is not None else None
    return Position(rank, row.entered, row.done, pending, operation, Family.LOG, row.source)
