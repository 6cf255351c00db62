"""Calls of shim logs as the other reductions know operations: which of them are surely not complete, from both ends.

A shim log is a history of library calls, not a dump: that a call returned says that the operation was enqueued. Completion is
told by its profiler door only, and only of operations that cross hosts. What follows from all logs together is said here:
an operation that some member of its communicator has not entered is pending on those that have, one of which some member's
network part is under way is not complete, and what everybody entered is taken for complete where nothing says otherwise.

The facts stay as they were read. A temporary relation `operations` with the completed rows hides the table of that name from
the reductions of this connection; it holds the newest log of each rank, and communicators whose members are all known.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.shim_logs import ShimLogs, source_ids


@dataclass(frozen=True, slots=True)
class Calls:
    """The case, with the calls of the job as `operations`: those of dumps, or those of shim logs where `from_shim` is set.

    `untold` are ranks that may wait in a call that shim logs could not show.
    """

    connection: DuckDBPyConnection
    from_shim: bool = False
    untold: frozenset[int] = frozenset()


_CHOSEN = """
SELECT o.*, m.position, c.size, coalesce(o.is_p2p, false) AS paired,
       bool_or(coalesce(o.is_p2p, false)) OVER (PARTITION BY o.communicator) AS mixed,
       count(*) OVER (PARTITION BY o.source_id, o.communicator) AS kept,
       max(o.op_id) OVER (PARTITION BY o.source_id, o.communicator) AS newest,
       count(*) FILTER (NOT coalesce(o.is_p2p, false)) OVER (
           PARTITION BY o.source_id, o.communicator ORDER BY o.op_id) AS collectives
FROM {operations} o JOIN communicators c USING (communicator)
JOIN members m ON m.communicator = o.communicator AND m.rank = o.rank
WHERE c.method = 'reported' AND list_contains($sources, o.source_id) AND o.op_id > 0
"""

# Collectives are counted without the sends and receives between them, which differ from member to member: possible where no
# call of the communicator was overwritten.
_NUMBERED = """
SELECT * EXCLUDE (mixed, kept, newest, collectives),
       CASE WHEN paired OR NOT mixed THEN op_id WHEN kept = newest THEN collectives END AS number,
       CASE WHEN kind = 'send' THEN position ELSE peer END AS sender,
       CASE WHEN kind = 'send' THEN peer ELSE position END AS receiver
FROM chosen
"""

# A member with a log and no call in a communicator has entered nothing. Where a member has no log, the call that all others
# made last is the one it may be missing in.
_FRONTIERS = """
WITH entered AS (
    SELECT m.communicator, m.rank, c.size, coalesce(max(n.number) FILTER (NOT n.paired), 0) AS entered,
           min(n.number) FILTER (NOT n.paired AND n.state = 'started') AS started,
           bool_or(NOT n.paired AND n.number IS NULL) AS uncounted, list_contains($ranks, m.rank) AS heard
    FROM members m JOIN communicators c USING (communicator)
    LEFT JOIN numbered n ON n.communicator = m.communicator AND n.rank = m.rank
    WHERE c.method = 'reported' GROUP BY ALL
)
SELECT communicator, min(started) AS started, bool_or(coalesce(uncounted, false)) AS uncounted,
       CASE WHEN bool_and(heard) OR min(entered) FILTER (heard) < max(entered) FILTER (heard) THEN min(entered) FILTER (heard)
            ELSE min(entered) FILTER (heard) - 1 END AS common
FROM entered GROUP BY communicator
"""

_PAIRS = """
WITH posted AS (
    SELECT communicator, sender, receiver, max(pair_number) FILTER (kind = 'send') AS sent,
           max(pair_number) FILTER (kind = 'recv') AS received,
           min(pair_number) FILTER (state = 'started') AS started
    FROM numbered WHERE kind IN ('send', 'recv') AND pair_number IS NOT NULL GROUP BY ALL
)
SELECT p.communicator, p.sender, p.receiver, p.started,
       CASE WHEN NOT list_contains($ranks, s.rank) THEN received - 1 WHEN NOT list_contains($ranks, r.rank) THEN sent - 1
            ELSE least(coalesce(sent, 0), coalesce(received, 0)) END AS common
FROM posted p
JOIN members s ON s.communicator = p.communicator AND s.position = p.sender
JOIN members r ON r.communicator = p.communicator AND r.position = p.receiver
"""

_STATED = """
SELECT n.* EXCLUDE (number, sender, receiver, position, size, paired)
       REPLACE (
           0 AS snapshot, n.entered_ns AS enqueued_ns,
           CASE WHEN n.paired THEN coalesce(n.pair_number, n.op_id) ELSE n.number END AS sequence,
           '[[' || n.count || ']]' AS input_sizes,
           CASE WHEN n.state <> 'pending' THEN n.state
                WHEN n.paired AND n.pair_number IS NULL THEN 'done'
                WHEN n.paired AND (n.pair_number > p.common OR n.pair_number >= p.started) THEN 'pending'
                WHEN n.paired THEN 'done'
                WHEN n.number > f.common OR n.number >= f.started THEN 'pending' ELSE 'done' END AS state,
           row_number() OVER (PARTITION BY n.source_id ORDER BY n.entered_ns, n.locator)
               - CASE WHEN list_contains($whole, n.source_id) THEN 1 ELSE 0 END AS record_id
       )
FROM numbered n LEFT JOIN frontiers f USING (communicator)
LEFT JOIN pairs p ON p.communicator = n.communicator AND p.sender = n.sender AND p.receiver = n.receiver
WHERE n.paired OR NOT f.uncounted
"""

_WHOLE = """
SELECT source_id FROM job_config WHERE key = 'shim.records.calls'
GROUP BY source_id HAVING bool_and(value LIKE '%overwritten=0 torn=0 dropped=0%')
"""


# Calls in communicators that are left out, because some member is not known, may be what a rank waits in.
_UNTOLD = """
SELECT DISTINCT rank FROM {operations} o WHERE list_contains($sources, o.source_id) AND o.rank IS NOT NULL AND o.state <> 'done'
    AND NOT EXISTS (SELECT 1 FROM temp.main.entered_calls e WHERE e.source_id = o.source_id AND e.locator = o.locator)
"""


@reduction
def calls(connection: DuckDBPyConnection, logs: ShimLogs) -> Calls:
    """Show the calls of the source that covers more ranks."""
    sources = source_ids(logs)
    if not enter_calls(connection, sources, logs.keys()):
        return Calls(connection)
    return Calls(connection, True, untold_ranks(connection, sources))


def untold_ranks(connection: DuckDBPyConnection, sources: Collection[int]) -> frozenset[int]:
    """Ranks that may wait in a call that `enter_calls` could not show: their record is not complete."""
    ((database,),) = connection.execute("SELECT current_database()").fetchall()
    query = _UNTOLD.format(operations=f'"{database}".main.operations')
    return frozenset(rank for (rank,) in connection.execute(query, {"sources": sorted(sources)}).fetchall())


def enter_calls(connection: DuckDBPyConnection, sources: Collection[int], ranks: Collection[int]) -> bool:
    """Show the calls of the logs `sources`, of `ranks`, as operations; False when dumps cover as many ranks.

    Dumps know completion and call paths; logs of more ranks may hold the one that left no dump. The two are never mixed: their
    numbers and orders are not comparable.
    """
    connection.execute("DROP VIEW IF EXISTS temp.main.operations")
    if not sources:  # a large job without logs must not pay for them
        return False
    ((recorded,),) = connection.execute(
        """
        SELECT count(DISTINCT o.rank) FROM operations o JOIN sources s USING (source_id)
        WHERE s.kind <> 'shim_log' AND o.snapshot IS NOT NULL AND o.rank IS NOT NULL
        """
    ).fetchall()
    if recorded >= len(ranks):
        return False
    whole = [source_id for (source_id,) in connection.execute(_WHOLE).fetchall()]
    asked = {"sources": sorted(sources), "ranks": sorted(ranks), "whole": whole}
    ((database,),) = connection.execute("SELECT current_database()").fetchall()
    steps = {
        "chosen": _CHOSEN.format(operations=f'"{database}".main.operations'),
        "numbered": _NUMBERED,
        "frontiers": _FRONTIERS,
        "pairs": _PAIRS,
        "entered_calls": _STATED,
    }
    for name, query in steps.items():
        used = {key: value for key, value in asked.items() if f"${key}" in query}
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}", used)
    for name in tuple(steps)[:-1]:
        connection.execute(f"DROP TABLE temp.main.{name}")
    connection.execute("CREATE TEMP VIEW operations AS SELECT * FROM temp.main.entered_calls")
    return True
