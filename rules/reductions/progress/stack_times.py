"""What the times of stacks say: looks that lie far apart are not of one moment, and a log that goes on shows motion then."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import has_rows, rows_of
from forensics.rules.reductions.interface import reduction

# Watchdogs, schedulers and people end a hang within hours; who collects by hand goes through all hosts within one.
_APART_S = 3600
# A line that a buffer held back may come late; several at the pace of before are steps.
_LEAST_LINES = 3

StackSpans = NewType("StackSpans", Mapping[int, int])
"""Time between the first and the last stack of each rank whose stacks are dated, in ns."""

# Times of day may lie on both sides of midnight.
_SPANS = """
WITH looks AS (
    SELECT rank, max(time_ns) - min(time_ns) AS dated_ns, (max(clock_s) - min(clock_s)) * 1000000000::BIGINT AS of_day_ns,
        count(time_ns) = count(*) AS are_dated, count(clock_s) = count(*) AS have_times
    FROM stacks WHERE rank IS NOT NULL AND NOT coalesce(is_child, false) GROUP BY rank
)
SELECT rank, CASE WHEN are_dated THEN dated_ns ELSE least(of_day_ns, 86400 * 1000000000::BIGINT - of_day_ns) END
FROM looks WHERE are_dated OR have_times
"""

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

# A log is dated as its last line, but for a zone (of quarters of an hour), where nobody copied it: then the dates of stacks,
# which were taken then or before, can be laid beside its lines.
_QUARTER_S = 900
_FARTHEST_ZONE_S = 14 * 3600
_WRITTEN_LATE_S = 5
_LATER_S = 2
_USUAL_PAUSES = 3
_BY_DATES = f"""
WITH looks AS (
    SELECT max(modified_ns) / 1e9 AS taken_s FROM sources WHERE kind = 'python_stacks' AND status IN ('ok', 'partial')
    HAVING count(*) = count(modified_ns) AND count(*) > 0
), logs AS (
    SELECT source_id, s.path, s.modified_ns / 1e9 - max(at_s) AS apart_s FROM log_progress p JOIN sources s USING (source_id)
    WHERE clock = 'line' AND at_s IS NOT NULL AND s.modified_ns IS NOT NULL GROUP BY source_id, s.path, s.modified_ns
), zoned AS (
    SELECT source_id, path, round(apart_s / {_QUARTER_S}) * {_QUARTER_S} AS zone_s FROM logs
    WHERE apart_s - round(apart_s / {_QUARTER_S}) * {_QUARTER_S} BETWEEN -1 AND {_WRITTEN_LATE_S}
        AND abs(apart_s) < {_FARTHEST_ZONE_S}
), series AS (
    SELECT path, count(DISTINCT step) FILTER (at_s + zone_s > taken_s + {_LATER_S}) AS later, max(step) AS last_step,
        count(DISTINCT step) FILTER (at_s + zone_s <= taken_s) AS before,
        min(at_s + zone_s) FILTER (at_s + zone_s > taken_s) - max(at_s + zone_s) FILTER (at_s + zone_s <= taken_s) AS pause_s,
        (max(at_s) - min(at_s)) / (count(DISTINCT at_s) - 1) AS usual_s
    FROM log_progress JOIN zoned USING (source_id), looks WHERE clock = 'line' AND at_s IS NOT NULL
    GROUP BY path, source_id, series, part HAVING count(DISTINCT at_s) > 1
)
SELECT path, later, last_step FROM series
WHERE before >= {_LEAST_LINES} AND later >= {_LEAST_LINES} AND pause_s <= {_USUAL_PAUSES} * usual_s + 1
ORDER BY later DESC, path LIMIT 1
"""


@reduction
def stack_spans(connection: DuckDBPyConnection) -> StackSpans:
    """For how long each rank was looked at, by dates or times of day above its stacks."""
    return StackSpans(dict(rows_of(connection, "stacks", _SPANS)))


def not_of_one_hang(connection: DuckDBPyConnection) -> str | None:
    """Why the stacks of a case cannot be read as one standing job; None where their times do not speak against it."""
    for first, last, spread_s, dated in rows_of(connection, "stacks", _SPREAD):
        if dated and spread_s >= _APART_S:
            return f"stacks of rank {last} were taken {spread_s / 3600:.1f} h after those of rank {first}: not of one moment"
    if not has_rows(connection, "stacks"):
        return None
    for path, lines, step in chain.from_iterable(rows_of(connection, "log_progress", each) for each in (_WENT_ON, _BY_DATES)):
        return f"{path} counts {lines} steps further after the stacks were taken, to {step}: the job moved then"
    return None
