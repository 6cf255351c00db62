"""The calls of each rank as a profiler saw them: the same columns as those of a recorder, with the marks of steps and stages.

Calls without a number of their process group are counted from the first step of the trace, so that calls of the same number are
one on all members as long as steps have the same calls; messages are counted on each rank. Where a step is annotated as one
forward and one backward pass, as without pipelines, its calls have no direction: in a pipeline the passes take turns. What a
group call issued is one kernel, which has the name of none of them: a message of unknown peers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import has_rows
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.steps.host_calls import named_calls
from forensics.rules.reductions.steps.records import UNKNOWN, Names, Record, records_of

TracedRecords = NewType("TracedRecords", Mapping[int, Record])
"""Calls of the newest trace of each rank."""

_NAMES = "SELECT DISTINCT {0} FROM seen_call ORDER BY 1"
_COLUMNS = """rank, source_id, locator, call_order, communicator, kind, is_p2p, enqueued_ns, device_end_ns, duration_ns"""
# Of traces that only name calls, those that the threads of the host tell apart.
_SEEN = f"""
CREATE OR REPLACE TEMP TABLE seen_call AS
SELECT {_COLUMNS}, peer, sequence, count FROM traced_call
WHERE communicator IS NOT NULL AND kind IS NOT NULL AND enqueued_ns IS NOT NULL
UNION ALL BY NAME SELECT {_COLUMNS} FROM named_call
WHERE rank NOT IN (SELECT rank FROM traced_call WHERE communicator IS NOT NULL)
"""
_IS_MESSAGE = "(coalesce(is_p2p, false) OR kind IN ('send', 'recv', 'coalesced'))"
# A number finds a message in the record of its rank: both sides meet by peer and order.
_MESSAGE_NUMBER = "CASE WHEN p.rank IS NOT NULL THEN o.call_order END"
_CALLS = f"""
WITH size AS (SELECT communicator, count(*) AS members FROM members GROUP BY communicator),
marks AS (
    SELECT source_id, rank, step, begin_ns, begin_ns + wall_ns AS end_ns FROM steps WHERE begin_ns + wall_ns IS NOT NULL
), stages AS (
    SELECT source_id, rank, stage, begin_ns, begin_ns + duration_ns AS end_ns FROM stage_spans
    WHERE begin_ns + duration_ns IS NOT NULL AND NOT coalesce(side_channel, false)
    WINDOW each_step AS (PARTITION BY source_id, rank, step)
    QUALIFY least(count(*) FILTER (stage = 'forward') OVER each_step, count(*) FILTER (stage = 'backward') OVER each_step) > 1
), marked AS (
    SELECT c.*, {_IS_MESSAGE} AS is_message, if(c.enqueued_ns < m.end_ns, m.step, NULL) AS step, m.begin_ns, m.end_ns
    FROM seen_call c ASOF LEFT JOIN marks m
    ON m.source_id = c.source_id AND m.rank = c.rank AND m.begin_ns <= c.enqueued_ns
), staged AS (
    SELECT c.*, CASE WHEN c.enqueued_ns >= g.end_ns THEN 0 WHEN g.stage = 'forward' THEN 1 WHEN g.stage = 'backward' THEN -1
                ELSE 0 END AS stated
    FROM marked c ASOF LEFT JOIN stages g
    ON g.source_id = c.source_id AND g.rank = c.rank AND g.begin_ns <= c.enqueued_ns
), counted AS (
    SELECT *, row_number() OVER (PARTITION BY rank, communicator, step ORDER BY call_order) AS place
    FROM staged WHERE sequence IS NULL AND step IS NOT NULL AND NOT is_message
), before AS (
    SELECT communicator, step, sum(most) OVER (PARTITION BY communicator ORDER BY step) - most AS earlier
    FROM (SELECT communicator, step, max(place) AS most FROM counted GROUP BY ALL)
), numbered AS (
    SELECT c.rank, c.call_order, c.place + b.earlier AS number FROM counted c JOIN before b USING (communicator, step)
)
SELECT o.rank, c.code AS communicator, k.code AS kind, coalesce(z.members, 0) AS members, o.is_message,
       o.kind LIKE '%send%' AS is_send, CAST(coalesce(p.rank, -1) AS BIGINT) AS peer,
       CAST(coalesce(o.sequence, n.number, {_MESSAGE_NUMBER}, {UNKNOWN}) AS BIGINT) AS sequence,
       coalesce(o.count, {UNKNOWN}) AS elements, {UNKNOWN} AS call_path, o.call_order, NULL::BIGINT AS record_id,
       o.source_id, o.locator, hash(c.code, k.code, o.count, p.rank)::UBIGINT AS token, token AS form, o.enqueued_ns,
       coalesce(o.device_end_ns, {UNKNOWN}) AS end_ns, coalesce(o.duration_ns, {UNKNOWN}) AS duration_ns, false AS by_arrivals,
       true AS done, coalesce(o.step, {UNKNOWN}) AS step, coalesce(o.begin_ns, {UNKNOWN}) AS step_begin_ns,
       coalesce(o.end_ns, {UNKNOWN}) AS step_end_ns, o.stated
FROM staged o JOIN communicator_codes c ON c.name = o.communicator JOIN kind_codes k ON k.name = o.kind
LEFT JOIN size z USING (communicator)
LEFT JOIN members p ON p.communicator = o.communicator AND p.position = o.peer AND o.is_message
LEFT JOIN numbered n ON n.rank = o.rank AND n.call_order = o.call_order
"""


@reduction
def traced_records(connection: DuckDBPyConnection) -> TracedRecords:
    """Records of the ranks whose traces tell the groups of their calls; empty without such traces."""
    if not has_rows(connection, "sources", ("kineto", "nsight")):
        return TracedRecords({})
    connection.register("named_call", named_calls(connection))
    connection.execute(_SEEN)
    connection.unregister("named_call")
    names = (
        tuple(name for (name,) in connection.execute(_NAMES.format(column)).fetchall()) for column in ("communicator", "kind")
    )
    return TracedRecords(records_of(connection, _CALLS, Names(*names)))
