"""Numbers repeated dumps of one rank in time order, and settles which rows stand when two sources say the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from forensics.bundle.artefact import Artefact
from forensics.case.call_store import calls_table
from forensics.case.database import Connection, has_rows
from forensics.case.moments import Taken, taken

# What one Flight Recorder dump shows of its rank: when it was newest, and a hash of the state it was in. Only of ranks that
# have several: hashing every operation of a large job would take as long as reading them.
_SEVERAL = "SELECT rank FROM sources WHERE kind = 'flight_recorder' AND rows > 0 GROUP BY rank HAVING count(*) > 1"
_DUMPS = f"""
WITH repeated AS (
    SELECT source_id FROM sources WHERE kind = 'flight_recorder' AND rank IN ({_SEVERAL})
)
SELECT s.rank, s.source_id, s.path, s.captured_ns, o.newest, coalesce(o.count, 0), hash(o.state, o.count, g.state)
FROM sources s JOIN repeated USING (source_id)
LEFT JOIN (
    SELECT source_id, max(greatest(enqueued_ns, device_start_ns, device_end_ns)) AS newest, count(*) AS count,
           bit_xor(hash(pg_id, sequence, op_id, record_id, state, retired)) AS state
    FROM operations JOIN repeated USING (source_id) GROUP BY source_id
) o USING (source_id)
LEFT JOIN (
    SELECT source_id, bit_xor(hash(pg_id, last_enqueued, last_started, last_completed)) AS state
    FROM group_views JOIN repeated USING (source_id) GROUP BY source_id
) g USING (source_id)
WHERE s.rows > 0
ORDER BY s.rank, s.source_id
"""

# JSON dumps have no frames; a pickle of the same process has them for the same records.
_CALL_PATHS = """
UPDATE {table} SET call_path = known.call_path FROM (
    SELECT rank, record_id, enqueued_ns, max(call_path) AS call_path FROM operations
    WHERE call_path IS NOT NULL AND record_id IS NOT NULL AND enqueued_ns IS NOT NULL
        AND rank IN (SELECT rank FROM operations WHERE call_path IS NULL)
    GROUP BY ALL
) known
WHERE {table}.call_path IS NULL AND {table}.rank = known.rank AND {table}.record_id = known.record_id
    AND {table}.enqueued_ns = known.enqueued_ns
"""

# What two dumps say of the same records, and what only one of them has: a dump of active entries leaves out finished ones, a
# small memory forgets the oldest, a file that was cut has lost the newest.
_CLASHES = """
WITH pair AS (
    SELECT source_id, coalesce(record_id, -1) AS record, coalesce(pg_id, -1) AS pg, coalesce(sequence, -1) AS sequence,
           coalesce(op_id, -1) AS op, state, retired, enqueued_ns
    FROM operations WHERE source_id IN ($one, $two)
), ends AS (
    SELECT source_id, min(record) AS oldest, max(record) AS newest, coalesce(bool_or(state = 'done'), false) AS has_done
    FROM pair GROUP BY source_id
), alone AS (
    SELECT b.record, b.state, e.oldest, e.newest, coalesce(e.has_done, false) AS has_done, s.status = 'partial' AS is_cut
    FROM pair b JOIN sources s ON s.source_id = CASE b.source_id WHEN $one THEN $two ELSE $one END
    LEFT JOIN ends e ON e.source_id = s.source_id
    WHERE NOT EXISTS (SELECT 1 FROM pair o WHERE o.source_id = s.source_id AND (o.record, o.pg, o.sequence, o.op)
        = (b.record, b.pg, b.sequence, b.op))
)
SELECT (SELECT count(*) FROM pair a JOIN pair b USING (record, pg, sequence, op) WHERE a.source_id = $one AND b.source_id = $two
            AND (a.state IS DISTINCT FROM b.state OR a.retired IS DISTINCT FROM b.retired
            OR a.enqueued_ns <> b.enqueued_ns))
     + (SELECT count(*) FROM alone WHERE NOT coalesce((state = 'done' AND NOT has_done) OR record < oldest
            OR (is_cut AND record > newest), false))
     + (SELECT count(*) FROM group_views a JOIN group_views b USING (pg_id) WHERE a.source_id = $one AND b.source_id = $two
            AND (a.last_enqueued <> b.last_enqueued OR a.last_started <> b.last_started
            OR a.last_completed <> b.last_completed))
"""


@dataclass(frozen=True, slots=True)
class _Dump:
    """One dump of a rank; `newest_ns` is the latest time inside it, `count` its operations, `state` a hash of what it shows."""

    rank: int
    source_id: int
    path: str
    captured_ns: int | None
    newest_ns: int | None
    count: int
    state: int


def number_dumps(connection: Connection, artefacts: Mapping[int, Artefact]) -> None:
    """Bring repeated dumps of each rank into one numbering, and drop what only repeats another source."""
    if has_rows(connection, "operations"):
        connection.execute(_CALL_PATHS.format(table=calls_table(connection)))
    if not connection.execute(_SEVERAL).fetchall():
        return
    dumps = [_Dump(*row) for row in connection.execute(_DUMPS).fetchall()]
    times = {dump.source_id: taken(artefacts[dump.source_id], {}) for dump in dumps}
    for _, group in groupby(dumps, key=lambda dump: dump.rank):
        _number(connection, _without_copies(connection, list(group), times), artefacts)


def _without_copies(connection: Connection, dumps: list[_Dump], times: Mapping[int, Taken]) -> list[_Dump]:
    """Dumps of different moments: proven apart, or with contents that cannot be of one moment.

    A pickle and a JSON of one moment are a pair of copies: counted twice they would look like a rank that made no progress, and
    a full dump and one of active entries like one that made some.
    """
    kept: list[_Dump] = []
    for dump in sorted(
        dumps, key=lambda item: (not times[item.source_id].is_proven, -item.count, item.captured_ns or 0, item.path)
    ):
        near = [item for item in kept if not times[item.source_id].is_apart(times[dump.source_id])]
        same = next((item for item in near if item.state == dump.state), None)
        first = same or next((item for item in near if _fit(connection, item, dump)), None)
        if first is None:
            kept.append(dump)
        else:
            _drop(connection, dump, f"shows the same state as {first.path}, whose operations stand for both")
    return sorted(kept, key=lambda item: item.source_id)


def _fit(connection: Connection, one: _Dump, two: _Dump) -> bool:
    """Whether two dumps that differ can be of one moment: one only leaves out what the other has."""
    ((clashes,),) = connection.execute(_CLASHES, {"one": one.source_id, "two": two.source_id}).fetchall()
    return bool(clashes == 0)


def _drop(connection: Connection, dump: _Dump, reason: str) -> None:
    connection.execute(f"DELETE FROM {calls_table(connection)} WHERE source_id = ?", [dump.source_id])
    connection.execute("DELETE FROM group_views WHERE source_id = ?", [dump.source_id])
    connection.execute(
        "UPDATE sources SET status = 'ignored', rows = 0, reason = ? WHERE source_id = ?", [reason, dump.source_id]
    )


def _number(connection: Connection, dumps: Sequence[_Dump], artefacts: Mapping[int, Artefact]) -> None:
    """Give the dumps of one rank their numbers: those that were given when they differ, else the order in time."""
    given = {dump.source_id: artefacts[dump.source_id].sample for dump in dumps}
    explicit = [number for number in given.values() if number is not None]
    if len(set(explicit)) == len(dumps):
        return
    if len(set(explicit)) < len(explicit):
        for dump in dumps[1:]:
            if given[dump.source_id] in explicit:
                _warn(connection, dump, f"rank {dump.rank} has more than one capture with this number; kept, ordered by time")
    ordered = sorted(
        dumps, key=lambda item: (item.newest_ns or 0, item.captured_ns or 0, given[item.source_id] or 0, item.path)
    )
    table = calls_table(connection)
    for number, dump in enumerate(ordered):
        if number != (given[dump.source_id] or 0):
            connection.execute(f"UPDATE {table} SET snapshot = ? WHERE source_id = ?", [number, dump.source_id])


def _warn(connection: Connection, dump: _Dump, message: str) -> None:
    connection.execute(
        "INSERT INTO ingest_warnings (source_id, path, message) VALUES (?, ?, ?)", [dump.source_id, dump.path, message]
    )
