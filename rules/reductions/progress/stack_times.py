"""What the times of stacks say: looks that lie far apart are not of one moment, and a log that goes on shows motion then."""

from __future__ import annotations

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of

# Watchdogs, schedulers and people end a hang within hours; who collects by hand goes through all hosts within one.
_APART_S = 3600
# A line that a buffer held back may come late; several at the pace of before are steps.
_LEAST_LINES = 3

_SPREAD = """
WITH newest AS (
    SELECT rank, max(time_ns) AS time_ns FROM stacks WHERE rank IS NOT NULL AND NOT is_child GROUP BY rank
)
SELECT arg_min(rank, time_ns), arg_max(rank, time_ns), (max(time_ns) - min(time_ns)) / 1e9,
       count(*) > 1 AND count(time_ns) = count(*)
FROM newest
"""

# Times of day, since neither the hours above stacks nor those of lines name a zone that both share: only a log that was running
# before and after, within one day, says something.
_WENT_ON = f"""
WITH looks AS (
    SELECT max(clock_s) AS clock_s FROM stacks WHERE clock_s IS NOT NULL AND rank IS NOT NULL AND NOT is_child
), lines AS (
    SELECT source_id, series, part, step, at_s % 86400 AS day_s, min(at_s) OVER one AS first_s, max(at_s) OVER one AS last_s
    FROM log_progress WHERE clock = 'line' AND at_s IS NOT NULL WINDOW one AS (PARTITION BY source_id, series, part)
)
SELECT s.path, count(DISTINCT step) FILTER (day_s > clock_s), max(step)
FROM lines JOIN sources s USING (source_id), looks
WHERE floor(first_s / 86400) = floor(last_s / 86400)
GROUP BY s.path, source_id, series, part, clock_s
HAVING count(DISTINCT step) FILTER (day_s < clock_s) >= {_LEAST_LINES}
   AND count(DISTINCT step) FILTER (day_s > clock_s) >= {_LEAST_LINES}
ORDER BY 2 DESC, 1 LIMIT 1
"""


def not_of_one_hang(connection: DuckDBPyConnection) -> str | None:
    """Why the stacks of a case cannot be read as one standing job; None where their times do not speak against it."""
    for first, last, spread_s, dated in rows_of(connection, "stacks", _SPREAD):
        if dated and spread_s >= _APART_S:
            return f"stacks of rank {last} were taken {spread_s / 3600:.1f} h after those of rank {first}: not of one moment"
    for path, lines, step in rows_of(connection, "log_progress", _WENT_ON):
        return f"{path} counts {lines} steps further after the stacks were taken, to {step}: the job moved then"
    return None
