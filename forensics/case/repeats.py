"""Numbers repeated captures of one rank in time order, and settles which rows stand when two sources say the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from forensics.case.database import Connection

Samples = Mapping[int, int | None]
"""The sample number of each source that its manifest or its path gave."""

# What one Flight Recorder dump shows of its rank: when it was newest, and a hash of the state it was in. Only of ranks that
# have several: hashing every operation of a large job would take as long as reading them.
_DUMPS = """
WITH repeated AS (
    SELECT source_id FROM sources WHERE kind = 'flight_recorder' AND rank IN (
        SELECT rank FROM sources WHERE kind = 'flight_recorder' AND rows > 0 GROUP BY rank HAVING count(*) > 1)
)
SELECT s.rank, s.source_id, s.path, s.captured_ns, o.newest, hash(o.state, o.count, g.state)
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
UPDATE operations SET call_path = known.call_path FROM (
    SELECT rank, record_id, enqueued_ns, max(call_path) AS call_path FROM operations
    WHERE call_path IS NOT NULL AND record_id IS NOT NULL AND enqueued_ns IS NOT NULL
        AND rank IN (SELECT rank FROM operations WHERE call_path IS NULL)
    GROUP BY ALL
) known
WHERE operations.call_path IS NULL AND operations.rank = known.rank AND operations.record_id = known.record_id
    AND operations.enqueued_ns = known.enqueued_ns
"""

_STACKS = """
SELECT rank, pid, source_id, any_value(path), any_value(time_ns)
FROM stacks JOIN sources USING (source_id, rank)
WHERE rank IS NOT NULL GROUP BY ALL ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class _Capture:
    """One capture of a rank; `newest_ns` is the latest time inside it, `state` a hash of what it shows."""

    rank: int
    source_id: int
    path: str
    captured_ns: int | None
    newest_ns: int | None = None
    state: int = 0


def number_repeats(connection: Connection, samples: Samples) -> None:
    """Bring repeated captures of the case into one numbering, and drop what only repeats another source."""
    connection.execute(_CALL_PATHS)
    dumps = [_Capture(*row) for row in connection.execute(_DUMPS).fetchall()]
    for _, group in groupby(dumps, key=lambda dump: dump.rank):
        captures = _without_copies(connection, list(group), samples)
        _number(connection, "operations", "snapshot", captures, samples)
    rows = connection.execute(_STACKS).fetchall()
    for _, looks in groupby(rows, key=lambda row: (row[0], row[1])):
        stacks = [_Capture(rank, source, path, time) for rank, _, source, path, time in looks]
        _number(connection, "stacks", "sample", stacks, samples)


def _without_copies(connection: Connection, dumps: list[_Capture], samples: Samples) -> list[_Capture]:
    """Dumps of different moments. One that shows the state of another without a number or a time of its own is a copy.

    A pickle and a JSON of one moment are such a pair: counted twice they would look like a rank that made no progress.
    """
    kept: list[_Capture] = []
    for dump in sorted(dumps, key=lambda item: (item.captured_ns is None, samples.get(item.source_id) is None, item.path)):
        moment = (dump.captured_ns, samples.get(dump.source_id))
        same = [item for item in kept if item.state == dump.state]
        first = next((item for item in same if moment in ((None, None), (item.captured_ns, samples.get(item.source_id)))), None)
        if first is None:
            kept.append(dump)
        else:
            _drop(connection, dump, f"shows the same state as {first.path}, whose operations stand for both")
    return sorted(kept, key=lambda item: item.source_id)


def _drop(connection: Connection, dump: _Capture, reason: str) -> None:
    connection.execute("DELETE FROM operations WHERE source_id = ?", [dump.source_id])
    connection.execute("DELETE FROM group_views WHERE source_id = ?", [dump.source_id])
    connection.execute(
        "UPDATE sources SET status = 'ignored', rows = 0, reason = ? WHERE source_id = ?", [reason, dump.source_id]
    )


def _number(connection: Connection, table: str, column: str, captures: Sequence[_Capture], samples: Samples) -> None:
    """Give the captures of one process their numbers: those that were given when they differ, else the order in time."""
    given = [samples.get(capture.source_id) for capture in captures]
    explicit = [number for number in given if number is not None]
    if len(set(explicit)) == len(captures):
        return
    if len(set(explicit)) < len(explicit):
        for capture in captures[1:]:
            if samples.get(capture.source_id) in explicit:
                message = f"rank {capture.rank} has more than one capture with this number; kept, ordered by time"
                _warn(connection, capture, message)
    ordered = sorted(captures, key=lambda item: (*_time(item), samples.get(item.source_id) or 0, item.path))
    for number, capture in enumerate(ordered):
        if number != (samples.get(capture.source_id) or 0):
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE source_id = ?", [number, capture.source_id])


def _time(capture: _Capture) -> Iterable[int]:
    """What orders captures in time: the newest time inside, then the time of capture."""
    return capture.newest_ns or 0, capture.captured_ns or 0


def _warn(connection: Connection, capture: _Capture, message: str) -> None:
    connection.execute(
        "INSERT INTO ingest_warnings (source_id, path, message) VALUES (?, ?, ?)", [capture.source_id, capture.path, message]
    )
