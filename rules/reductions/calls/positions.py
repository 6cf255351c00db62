"""Where every rank stands in every communicator: the columns that the wait-for graph is built from.

Numbers are taken from the newest dump of each rank. `entered` is the highest collective sequence a rank issued, `pending` the
first one it issued that is not done. A rank without recorder evidence has no row: absence is not zero.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.alignment import plain_label
from forensics.case.database import has_rows, rows_of
from forensics.model import Family
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction

DIRECT = frozenset({Family.RECORDER, Family.SHIM, Family.STACK})
"""Families that record what a rank does itself; the others report numbers, and not when they were reached."""


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
    """One rank in one communicator; `entered` and `done` are 0 before the first collective.

    The rank issued `entered` at least, and no more at `time_ns` (unknown: None) unless it is in the group's `cut`; it finished
    `done` at least. `source` is the place that decided, `also` are places that agree with it.
    """

    rank: int
    entered: int
    done: int
    pending: int | None
    operation: Operation | None
    family: Family = Family.RECORDER
    source: str = ""
    time_ns: int | None = None
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Communicator:
    """A communicator, its members, how membership was found, and the positions of the members that have a dump.

    `cut` are ranks whose dump could not be read to its end: their positions are the least they reached. `captured` are the
    times at which the newest dumps were taken, where a manifest tells: what was issued later is in none of them. `size` is the
    number of members, known or not (0: those that are known), `unit` what its numbers count. `names` are what it is called by
    sources that can be compared: `pg:` and a process group, `nccl:` and the hash of NCCL's communicator. `nameless` are
    processes whose rank nothing tells, with what they entered, and `least` is what everybody entered, known of or not.
    `overdue` says that its source speaks of it because a limit has passed.
    """

    label: str
    members: tuple[int, ...]
    confidence: str
    positions: Mapping[int, Position]
    backend: str = "unknown"
    cut: frozenset[int] = frozenset()
    captured: Mapping[int, int] = field(default_factory=dict)
    size: int = 0
    unit: str = "call"
    names: frozenset[str] = frozenset()
    nameless: Mapping[str, int] = field(default_factory=dict)
    least: int = 0
    overdue: bool = False

    @property
    def family(self) -> Family:
        """What tells of the calls of its members."""
        return next((place.family for place in self.positions.values()), Family.RECORDER)

    @property
    def heard(self) -> float:
        """Share of the members whose position is known."""
        return len(self.positions) / max(self.size, len(self.members), 1)

    def finished(self, sequence: int) -> tuple[int, ...]:
        """Members that are known to have completed the operation `sequence`."""
        return tuple(sorted(rank for rank, position in self.positions.items() if position.done >= sequence))

    @property
    def pending(self) -> tuple[Position, ...]:
        """Positions of the members that wait inside an operation of this communicator."""
        return tuple(p for _, p in sorted(self.positions.items()) if p.pending is not None)


def labelled(groups: Iterable[Communicator], label: str) -> Communicator | None:
    """The communicator of this label, None where there is none."""
    return next((group for group in groups if group.label == label), None)


RecordedCommunicators = NewType("RecordedCommunicators", tuple[Communicator, ...])
"""Communicators as recorded calls show them."""
LoggedPositions = NewType("LoggedPositions", tuple[Communicator, ...])
"""Communicators as the numbers in logs show them."""
CountedPositions = NewType("CountedPositions", tuple[Communicator, ...])
"""Communicators as the counters of a library show them."""
Communicators = NewType("Communicators", tuple[Communicator, ...])
"""All communicators of recorded calls, with what other sources say of their members."""

_POSITIONS = """
SELECT p.communicator, p.rank, p.family, src.path || '#entry=' || p.locator, p.entered, p.done, p.pending,
       o.kind, coalesce(o.input_sizes, ''), o.enqueued_ns, o.call_path, src.path || '#entry=' || o.locator,
       o.call_order, o.state = 'started'
FROM position p LEFT JOIN sources src USING (source_id)
LEFT JOIN ordered_call o ON o.communicator = p.communicator AND o.rank = p.rank AND o.family = p.family
     AND o.sequence = p.pending AND o.state <> 'done' AND NOT coalesce(o.is_p2p, false) AND o.kind NOT IN ('send', 'recv')
QUALIFY row_number() OVER (PARTITION BY p.communicator, p.rank ORDER BY o.record_id, o.locator) = 1
ORDER BY p.communicator, p.rank
"""

# Dumps with active entries only hold no completed ones, but the counters of each group. Counters of groups that mix
# collectives with point-to-point calls only ever raise a position of a collective that was recorded.
_REPORTED = """
SELECT m.communicator, v.rank, greatest(max(v.last_enqueued), 0), greatest(max(v.last_completed), 0),
       min(s.path || '#' || v.locator)
FROM group_views v JOIN sources s USING (source_id)
JOIN communicators c ON c.pg_name = v.pg_name AND c.backend <> 'gloo'
JOIN members m ON m.communicator = c.communicator AND m.rank = v.rank
WHERE v.last_enqueued IS NOT NULL
GROUP BY m.communicator, v.rank
"""

_UNUSED = """
WITH complete AS (
    SELECT rank FROM group_views WHERE rank IS NOT NULL GROUP BY rank
    HAVING rank NOT IN (SELECT rank FROM operations WHERE rank IS NOT NULL GROUP BY rank
                        HAVING coalesce(min(record_id), 0) > 0)
), logged AS (
    SELECT DISTINCT communicator FROM communicator_states WHERE communicator IS NOT NULL
)
SELECT communicator, rank, 'recorder' FROM members JOIN complete USING (rank) ANTI JOIN logged USING (communicator)
"""
_UNUSED_LOGGED = """
SELECT DISTINCT communicator, rank, 'shim' FROM communicator_states JOIN rank_logs USING (source_id, rank)
WHERE operations = 0 AND communicator IN (SELECT communicator FROM latest_call)
"""


@reduction
def recorded_communicators(calls: Calls) -> RecordedCommunicators:
    """Read all communicators with positions, in label order."""
    connection = calls.connection
    positions: dict[str, dict[int, Position]] = defaultdict(dict)
    for communicator, rank, entered, done, source in rows_of(connection, "group_views", _REPORTED):
        positions[communicator][rank] = Position(rank, entered, done, None, None, source=source)
    empty = not has_rows(connection, "operations")
    counted = {label: places for label, places in positions.items() if empty and _is_one_moment(places)}
    for label, rank, family, source, entered, done, pending, *operation in rows_of(connection, "operations", _POSITIONS):
        reported = positions[label].get(rank)
        done = max(done, reported.done) if reported else done
        place = Position(rank, entered, done, pending, _operation(pending, operation), Family(family), source)
        positions[label][rank] = place
    for label, places in counted.items():
        positions[label] = {rank: _waiting(place) for rank, place in places.items()}
    cut = _cut(connection) | calls.undetermined
    captured = _captured(connection)
    _add_unused(connection, positions)
    return RecordedCommunicators(
        tuple(
            Communicator(label, members, confidence, positions[label], backend, cut, captured, names=names)
            for label, members, confidence, backend, names in _members(connection)
        )
    )


def _is_one_moment(places: Mapping[int, Position]) -> bool:
    """Whether counters of a group, in dumps that hold no calls, fit together: nobody finished what another had not made.

    Those of messages and of calls that are left early do not, and neither do those of dumps of several moments.
    """
    return max(place.done for place in places.values()) <= min(place.entered for place in places.values())


def _waiting(place: Position) -> Position:
    """The position of one that waits in the first call that it made and did not finish, by its counters alone."""
    return replace(place, pending=place.done + 1) if place.entered > place.done else place


def _cut(connection: DuckDBPyConnection) -> frozenset[int]:
    """Ranks whose newest dump was damaged or cut."""
    read = "(SELECT DISTINCT rank, source_id FROM latest_call) r JOIN sources USING (source_id)"
    rows = rows_of(connection, "operations", f"SELECT DISTINCT r.rank FROM {read} WHERE status = 'partial'")
    rows += rows_of(
        connection,
        "sources",
        """
        SELECT rank FROM sources WHERE kind = 'flight_recorder' AND rank IS NOT NULL
        GROUP BY rank HAVING bool_and(status NOT IN ('ok', 'ignored'))
        """,
        kinds=("flight_recorder",),
    )
    return frozenset(rank for (rank,) in rows)


def _captured(connection: DuckDBPyConnection) -> dict[int, int]:
    """When the newest dump of each rank was taken, by the manifest; of a shim log its last sign of life."""
    if not has_rows(connection, "sources", ("flight_recorder", "shim_log")):
        return {}
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
    kind, sizes, enqueued_ns, call_path, source, order, started = row
    return Operation(
        str(kind),
        str(sizes),
        enqueued_ns if isinstance(enqueued_ns, int) else None,
        call_path if isinstance(call_path, int) else None,
        str(source),
        order if isinstance(order, int) else 0,
        started is True,
    )


def _add_unused(connection: DuckDBPyConnection, positions: dict[str, dict[int, Position]]) -> None:
    """A member whose dump was read and holds nothing of a group has not entered it: position zero.

    The dump must reach back far enough: a ring that wrapped may have lost the group's entries. So it is with a shim log.
    """
    rows = rows_of(connection, "group_views", _UNUSED) + rows_of(connection, "communicator_states", _UNUSED_LOGGED)
    for communicator, rank, family in rows:
        positions[communicator].setdefault(rank, Position(rank, 0, 0, None, None, Family(family)))


def _members(connection: DuckDBPyConnection) -> list[tuple[str, tuple[int, ...], str, str, frozenset[str]]]:
    rows = rows_of(
        connection,
        "members",
        """
        SELECT communicator, list(rank ORDER BY position), any_value(confidence), any_value(backend),
               any_value(pg_name), any_value(description)
        FROM members JOIN communicators USING (communicator) GROUP BY communicator ORDER BY communicator
        """,
    )
    return [(label, tuple(ranks), confidence, backend, _names(*named)) for label, ranks, confidence, backend, *named in rows]


def _names(name: str | None, description: str | None) -> frozenset[str]:
    return frozenset({f"pg:{name}", f"pg:{plain_label(name, description)}"} if name else ())
