"""Leave out the log of a run that failed, where another one beside it is of a later run that counts the same steps.

All dated lines of the later one are newer. That alone shows nothing: clocks of one job may be hours apart. It is another run
where it does more steps than the peers of a rank that failed can, or where it tells of no error and its pace is another one.

Without dates it is later where it begins amid the steps of the other one, or right behind them, and goes as much further:
nobody who failed trains on. Both are of the same rank then, or of none, and count under the same labels.
"""

from __future__ import annotations

from forensics.case.database import Connection, has_rows
from forensics.case.other_runs import OF_NO_FAILURE, reject

_LEAST_STEPS = 3
_APART_S = 60
"""Lines of one step are written within this time by all ranks, and so far apart by clocks of which one is wrong."""
_FURTHER = 2
"""By so many intervals between the lines of one rank its peers may be ahead of the last one it wrote."""
_FORMER = f"""
WITH counted AS (
    SELECT source_id, regexp_replace(series, '^[0-9]+ ?', '') AS series, total, step, min(at_s) AS at_s FROM log_progress
    WHERE clock = 'line' GROUP BY ALL
), failed AS (
    SELECT DISTINCT source_id FROM log_events WHERE NOT {OF_NO_FAILURE} AND NOT starts_with(kind, 'earlier_')
), log AS (
    SELECT source_id, series, total, min(at_s) AS first_s, max(at_s) AS last_s, max(step) AS furthest,
           (max(step) - min(step)) / (count(*) - 1) AS every
    FROM counted GROUP BY ALL HAVING count(*) >= $least
), pair AS (
    SELECT o.source_id AS former, n.source_id AS later, n.furthest > o.furthest + $further * o.every AS is_further,
           n.source_id IN (SELECT source_id FROM failed) AS failed_too
    FROM log o JOIN log n ON o.series = n.series AND o.total IS NOT DISTINCT FROM n.total AND n.first_s > o.last_s + $apart
    WHERE o.source_id IN (SELECT source_id FROM failed)
), shifts AS (
    SELECT p.former, p.later, count(*) AS shared, max(b.at_s - a.at_s) - min(b.at_s - a.at_s) AS spread
    FROM pair p JOIN counted a ON a.source_id = p.former JOIN counted b
    ON b.source_id = p.later AND b.series = a.series AND b.step = a.step AND b.total IS NOT DISTINCT FROM a.total GROUP BY ALL
)
SELECT p.former, f.path, min(l.path) FROM pair p LEFT JOIN shifts s USING (former, later)
JOIN sources f ON f.source_id = p.former JOIN sources l ON l.source_id = p.later
WHERE p.is_further OR (NOT p.failed_too AND s.shared >= $least AND s.spread > $apart) GROUP BY ALL ORDER BY ALL
"""

_UNDATED = f"""
WITH log AS (
    SELECT p.source_id, regexp_replace(series, '^[0-9]+ ?', '') AS series, total, coalesce(p.rank, s.rank) AS rank,
           min(step) AS first, max(step) AS last, (max(step) - min(step)) / (count(DISTINCT step) - 1) AS every,
           bool_or(clock = 'line') AS dated
    FROM log_progress p JOIN sources s USING (source_id) GROUP BY 1, 2, 3, 4 HAVING count(DISTINCT step) >= $least
), failed AS (
    SELECT DISTINCT source_id FROM log_events WHERE NOT {OF_NO_FAILURE} AND NOT starts_with(kind, 'earlier_')
)
SELECT o.source_id, f.path, min(l.path) FROM log o JOIN log n ON o.series = n.series AND o.total IS NOT DISTINCT FROM n.total
    AND o.rank IS NOT DISTINCT FROM n.rank AND NOT (coalesce(o.dated, false) AND coalesce(n.dated, false))
    AND n.first > o.first AND n.first <= o.last + $further * o.every AND n.last > o.last + $further * o.every
JOIN sources f ON f.source_id = o.source_id JOIN sources l ON l.source_id = n.source_id
WHERE o.source_id IN (SELECT source_id FROM failed) GROUP BY ALL ORDER BY ALL
"""


def leave_out_former_logs(connection: Connection) -> None:
    """Take their rows out of the case."""
    if not has_rows(connection, "log_progress") or not has_rows(connection, "log_events"):
        return
    limits = {"least": _LEAST_STEPS, "apart": _APART_S, "further": _FURTHER}
    for source_id, path, later in connection.execute(_FORMER, limits).fetchall():
        reject(connection, path, [source_id], f"its steps ended before the first step of {later}: another run")
    for source_id, path, later in connection.execute(_UNDATED, {"least": _LEAST_STEPS, "further": _FURTHER}).fetchall():
        reject(connection, path, [source_id], f"{later} goes on with its steps: a later start of the same run")
