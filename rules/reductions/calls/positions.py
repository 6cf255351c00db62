"""Where every rank stands in every communicator: the columns that the wait-for graph is built from.

Numbers are taken from the newest dump of each rank. `entered` is the highest collective sequence a rank issued, `pending` the
first one it issued that is not done. A rank without recorder evidence has no row: absence is not zero.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.calls.group_calls import OPERATIONS
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction


@dataclass(frozen=True, slots=True)
class Operation:
    """The facts of one pending operation; `source` is `path#entry=N`, `order` its number among all calls of its process.

    Operations of one group call have the same `order`. `started` says that the device has begun it.
    """

    kind: str
    sizes: str
    enqueued_ns: int | None
    call_path: int | None
    source: str
    order: int = 0
    started: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """One rank in one communicator; `entered` and `done` are 0 before the first collective."""

    rank: int
    entered: int
    done: int
    pending: int | None
    operation: Operation | None


@dataclass(frozen=True, slots=True)
class Communicator:
    """A communicator, its members, how membership was found, and the positions of the members that have a dump.

    `cut` are ranks whose dump could not be read to its end: their positions are the least they reached. `captured` are the
    times at which the newest dumps were taken, where a manifest tells: what was issued later is in none of them.
    """

    label: str
    members: tuple[int, ...]
    confidence: str
    positions: Mapping[int, Position]
    backend: str = "unknown"
    cut: frozenset[int] = frozenset()
    captured: Mapping[int, int] = field(default_factory=dict)

    def finished(self, sequence: int) -> tuple[int, ...]:
        """Members that are known to have completed the operation `sequence`."""
        return tuple(sorted(rank for rank, position in self.positions.items() if position.done >= sequence))

    @property
    def pending(self) -> tuple[Position, ...]:
        """Positions of the members that wait inside an operation of this communicator."""
        return tuple(p for _, p in sorted(self.positions.items()) if p.pending is not None)


Communicators = NewType("Communicators", tuple[Communicator, ...])
"""All communicators of the job."""

_POSITIONS = f"""
WITH newest AS (
    SELECT rank, max(snapshot) AS snapshot FROM operations WHERE rank IS NOT NULL GROUP BY rank
), numbered AS (
    SELECT o.* FROM {OPERATIONS} o JOIN newest USING (rank, snapshot)
    WHERE NOT coalesce(is_p2p, false) AND kind NOT IN ('send', 'recv') AND communicator IS NOT NULL AND sequence >= 0
), summary AS (
    SELECT communicator, rank, max(sequence) AS entered,
           coalesce(max(sequence) FILTER (state = 'done'), 0) AS done,
           min(sequence) FILTER (state <> 'done') AS pending
    FROM numbered GROUP BY communicator, rank
)
SELECT s.communicator, s.rank, s.entered, s.done, s.pending,
       n.kind, coalesce(n.input_sizes, ''), n.enqueued_ns, n.call_path, src.path, n.locator,
       n.call_order, n.state = 'started'
FROM summary s
LEFT JOIN numbered n ON n.communicator = s.communicator AND n.rank = s.rank AND n.sequence = s.pending
     AND n.state <> 'done'
LEFT JOIN sources src ON src.source_id = n.source_id
QUALIFY row_number() OVER (PARTITION BY s.communicator, s.rank ORDER BY n.record_id, n.locator) = 1
ORDER BY s.communicator, s.rank
"""

# Dumps with active entries only hold no completed ones, but the counters of each group. Counters of groups that mix
# collectives with point-to-point calls only ever raise a position of a collective that was recorded.
_REPORTED = """
SELECT m.communicator, v.rank, greatest(max(v.last_enqueued), 0), greatest(max(v.last_completed), 0)
FROM group_views v
JOIN communicators c ON c.pg_name = v.pg_name AND c.backend <> 'gloo'
JOIN members m ON m.communicator = c.communicator AND m.rank = v.rank
WHERE v.last_enqueued IS NOT NULL
GROUP BY m.communicator, v.rank
"""


@reduction
def communicators(calls: Calls) -> Communicators:
    """Read all communicators with positions, in label order."""
    connection = calls.connection
    positions: dict[str, dict[int, Position]] = defaultdict(dict)
    for communicator, rank, entered, done in connection.execute(_REPORTED).fetchall():
        positions[communicator][rank] = Position(rank, entered, done, None, None)
    for label, rank, entered, done, pending, *operation in connection.execute(_POSITIONS).fetchall():
        reported = positions[label].get(rank)
        done = max(done, reported.done) if reported else done
        positions[label][rank] = Position(rank, entered, done, pending, _operation(pending, operation))
    cut = _cut(connection) | calls.untold
    captured = _captured(connection)
    _add_unused(connection, positions)
    return Communicators(
        tuple(
            Communicator(label, members, confidence, positions[label], backend, cut, captured)
            for label, members, confidence, backend in _members(connection)
        )
    )


def _cut(connection: DuckDBPyConnection) -> frozenset[int]:
    """Ranks whose newest dump was damaged or cut."""
    rows = connection.execute(
        """
        WITH newest AS (SELECT rank, max(snapshot) AS snapshot FROM operations WHERE rank IS NOT NULL GROUP BY rank),
        read AS (SELECT DISTINCT rank, source_id FROM operations JOIN newest USING (rank, snapshot))
        SELECT DISTINCT r.rank FROM read r JOIN sources USING (source_id) WHERE status = 'partial'
        UNION SELECT rank FROM sources WHERE kind = 'flight_recorder' AND rank IS NOT NULL
        GROUP BY rank HAVING bool_and(status NOT IN ('ok', 'ignored'))
        """
    ).fetchall()
    return frozenset(rank for (rank,) in rows)


def _captured(connection: DuckDBPyConnection) -> dict[int, int]:
    """When the newest dump of each rank was taken, by the manifest; of a shim log its last sign of life."""
    rows = connection.execute(
        """
        SELECT rank, max(captured_ns) FROM sources WHERE kind = 'flight_recorder' AND rank IS NOT NULL AND rows > 0
        GROUP BY rank HAVING count(captured_ns) = count(*)
        UNION ALL
        SELECT rank, max(end_ns) FROM coverage WHERE kind = 'shim_log' AND rank IS NOT NULL
            AND rank NOT IN (SELECT rank FROM sources WHERE kind = 'flight_recorder' AND rank IS NOT NULL)
        GROUP BY rank HAVING count(end_ns) > 0
        """
    ).fetchall()
    return dict(rows)


def _operation(pending: int | None, row: list[object]) -> Operation | None:
    if pending is None:
        return None
    kind, sizes, enqueued_ns, call_path, path, locator, order, started = row
    return Operation(
        str(kind),
        str(sizes),
        enqueued_ns if isinstance(enqueued_ns, int) else None,
        call_path if isinstance(call_path, int) else None,
        f"{path}#entry={locator}",
        order if isinstance(order, int) else 0,
        started is True,
    )


def _add_unused(connection: DuckDBPyConnection, positions: dict[str, dict[int, Position]]) -> None:
    """A member whose dump was read and holds nothing of a group has not entered it: position zero.

    The dump must reach back far enough: a ring that wrapped may have lost the group's entries.
    """
    rows = connection.execute(
        """
        WITH complete AS (
            SELECT rank FROM group_views WHERE rank IS NOT NULL GROUP BY rank
            HAVING rank NOT IN (SELECT rank FROM operations WHERE rank IS NOT NULL GROUP BY rank
                                HAVING coalesce(min(record_id), 0) > 0)
        )
        SELECT communicator, rank FROM members JOIN complete USING (rank)
        UNION SELECT communicator, rank FROM communicator_states WHERE operations = 0 AND rank IS NOT NULL
            AND communicator IN (SELECT communicator FROM operations)
        """
    ).fetchall()
    for communicator, rank in rows:
        positions[communicator].setdefault(rank, Position(rank, 0, 0, None, None))


def _members(connection: DuckDBPyConnection) -> list[tuple[str, tuple[int, ...], str, str]]:
    rows = connection.execute(
        """
        SELECT communicator, list(rank ORDER BY position), any_value(confidence), any_value(backend)
        FROM members JOIN communicators USING (communicator) GROUP BY communicator ORDER BY communicator
        """
    ).fetchall()
    return [(label, tuple(ranks), confidence, backend) for label, ranks, confidence, backend in rows]
