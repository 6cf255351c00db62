"""Calls of shim logs as dumps would have them: which of them are surely not complete, from both ends.

A shim log is a history of library calls, not a dump: that a call returned says that the operation was enqueued. Completion is
shown by its profiler hook only, and only of operations that cross hosts. What follows from all logs together is said here:
an operation that some member of its communicator has not entered is pending on those that have, one of which some member's
network part is under way is not complete, one in which members made different calls is not either, unless a later one of theirs
is known to be, and what everybody entered is taken for complete where nothing says otherwise.

The facts stay as they were read: what is inferred stands in `logged_calls`, of the newest log of each rank (`rank_logs`) and of
communicators whose members are all known. Where dumps cover every rank that has a log, nothing is inferred.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from forensics.case.database import Connection, insert_rows, rows_of

_LOGS = """
SELECT s.rank, s.source_id, c.begin_ns, c.end_ns
FROM sources s JOIN coverage c ON c.source_id = s.source_id AND c.kind = 'shim_log' AND c.scope = 'rank'
WHERE s.kind = 'shim_log' AND s.rank IS NOT NULL AND c.begin_ns IS NOT NULL AND c.end_ns IS NOT NULL
ORDER BY s.rank, c.begin_ns, c.end_ns, s.path
"""
_PROCESSES = """
SELECT source_id, string_agg(value, ' ' ORDER BY key) FROM job_config
WHERE key IN ('shim.pid', 'shim.process_start', 'shim.boot_id') GROUP BY source_id
"""
_UNDUMPED = "SELECT count(*) FROM rank_logs WHERE rank NOT IN (SELECT rank FROM capture)"

# Members of all other kinds may legally bring different sizes.
_EVEN = ("all_reduce", "broadcast", "reduce")
# Collectives are counted without the sends and receives between them, which differ from member to member: possible where no
# call of the communicator was overwritten. A member with a log and no call in a communicator has entered nothing. Where a
# member has no log, the call that all others made last is the one it may be missing in.
_CALLS = """
INSERT INTO logged_calls
WITH chosen AS (
    SELECT o.*, m.position, c.size, coalesce(o.is_p2p, false) AS paired,
           bool_or(coalesce(o.is_p2p, false)) OVER (PARTITION BY o.communicator) AS mixed,
           count(*) OVER (PARTITION BY o.source_id, o.communicator) AS kept,
           max(o.op_id) OVER (PARTITION BY o.source_id, o.communicator) AS newest,
           count(*) FILTER (NOT coalesce(o.is_p2p, false)) OVER (
               PARTITION BY o.source_id, o.communicator ORDER BY o.op_id) AS collectives
    FROM operations o JOIN rank_logs USING (source_id, rank) JOIN communicators c USING (communicator)
    JOIN members m ON m.communicator = o.communicator AND m.rank = o.rank
    WHERE c.method IN ('reported', 'siblings') AND o.op_id > 0
), numbered AS (
    SELECT * EXCLUDE (mixed, kept, newest, collectives),
           CASE WHEN paired OR NOT mixed THEN op_id WHEN kept = newest THEN collectives END AS number,
           CASE WHEN kind = 'send' THEN position ELSE peer END AS sender,
           CASE WHEN kind = 'send' THEN peer ELSE position END AS receiver
    FROM chosen
), parted AS (
    SELECT communicator, number, max(number) FILTER (has_done) OVER (PARTITION BY communicator) AS passed FROM (
        SELECT communicator, number, bool_or(state = 'done') AS has_done,
               count(DISTINCT kind) > 1 OR count(DISTINCT (dtype, count)) FILTER (kind IN $even) > 1 AS differs
        FROM numbered WHERE NOT paired AND number IS NOT NULL GROUP BY ALL
    ) QUALIFY differs
), frontiers AS (
    WITH entered AS (
        SELECT m.communicator, m.rank, c.size, coalesce(max(n.number) FILTER (NOT n.paired), 0) AS entered,
               min(n.number) FILTER (NOT n.paired AND n.state = 'started') AS started,
               bool_or(NOT n.paired AND n.number IS NULL) AS uncounted, m.rank IN (SELECT rank FROM rank_logs) AS heard
        FROM members m JOIN communicators c USING (communicator)
        LEFT JOIN numbered n ON n.communicator = m.communicator AND n.rank = m.rank
        WHERE c.method IN ('reported', 'siblings') GROUP BY ALL
    )
    SELECT communicator, bool_or(coalesce(uncounted, false)) AS uncounted,
           least(min(started), (SELECT min(p.number) FROM parted p
               WHERE p.communicator = entered.communicator AND p.number >= coalesce(p.passed, 0))) AS started,
           CASE WHEN bool_and(heard) OR min(entered) FILTER (heard) < max(entered) FILTER (heard)
                THEN min(entered) FILTER (heard) ELSE min(entered) FILTER (heard) - 1 END AS common
    FROM entered GROUP BY communicator
), pairs AS (
    WITH posted AS (
        SELECT communicator, sender, receiver, max(pair_number) FILTER (kind = 'send') AS sent,
               max(pair_number) FILTER (kind = 'recv') AS received,
               min(pair_number) FILTER (state = 'started') AS started
        FROM numbered WHERE kind IN ('send', 'recv') AND pair_number IS NOT NULL GROUP BY ALL
    )
    SELECT p.communicator, p.sender, p.receiver, p.started,
           CASE WHEN s.rank NOT IN (SELECT rank FROM rank_logs) THEN received - 1
                WHEN r.rank NOT IN (SELECT rank FROM rank_logs) THEN sent - 1
                ELSE least(coalesce(sent, 0), coalesce(received, 0)) END AS common
    FROM posted p
    JOIN members s ON s.communicator = p.communicator AND s.position = p.sender
    JOIN members r ON r.communicator = p.communicator AND r.position = p.receiver
), whole AS (
    SELECT source_id FROM job_config WHERE key = 'shim.records.calls'
    GROUP BY source_id HAVING bool_and(value LIKE '%overwritten=0 torn=0 dropped=0%' AND value NOT LIKE '%unread=%')
)
SELECT n.source_id, n.locator,
       CASE WHEN n.paired THEN coalesce(n.pair_number, n.op_id) ELSE n.number END AS sequence,
       row_number() OVER (PARTITION BY n.source_id ORDER BY n.entered_ns, n.locator)
           - CASE WHEN w.source_id IS NOT NULL THEN 1 ELSE 0 END AS record_id,
       CASE WHEN n.state <> 'pending' THEN n.state
            WHEN n.paired AND n.pair_number IS NULL THEN 'done'
            WHEN n.paired AND (n.pair_number > p.common OR n.pair_number >= p.started) THEN 'pending'
            WHEN n.paired THEN 'done'
            WHEN n.number > f.common OR n.number >= f.started THEN 'pending' ELSE 'done' END AS state
FROM numbered n LEFT JOIN frontiers f USING (communicator) LEFT JOIN whole w ON w.source_id = n.source_id
LEFT JOIN pairs p ON p.communicator = n.communicator AND p.sender = n.sender AND p.receiver = n.receiver
WHERE n.paired OR NOT f.uncounted
"""


def complete_calls(connection: Connection) -> None:
    """Fill `rank_logs` and `logged_calls`; none when two processes were one rank at the same time: these are several jobs."""
    connection.execute("DELETE FROM rank_logs; DELETE FROM logged_calls")
    logs: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for rank, *log in rows_of(connection, "coverage", _LOGS):
        logs[rank].append((log[0], log[1], log[2]))
    processes = dict(connection.execute(_PROCESSES).fetchall()) if logs else {}
    if any(_overlap(found, processes) for found in logs.values()):
        return
    newest = {rank: max(found, key=lambda log: log[1:]) for rank, found in logs.items()}
    insert_rows(connection, "rank_logs", "source_id rank", [(log[0], rank) for rank, log in newest.items()])
    if newest and connection.execute(_UNDUMPED).fetchall() != [(0,)]:
        connection.execute(_CALLS, {"even": list(_EVEN)})


def _overlap(logs: list[tuple[int, int, int]], processes: dict[int, str]) -> bool:
    """Whether logs (source, begin and end) of different processes were written at the same time."""
    return any(two[1] < one[2] and processes.get(one[0]) != processes.get(two[0]) for one, two in pairwise(logs))
