"""Steps of the job around a report of RAS in one text."""

from __future__ import annotations

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of

# Higher steps in the lines below the last report of a text than above it. A step may still be printed that was on its way.
_TRAINED_ON = """
WITH last AS (
    SELECT s.path, max(TRY_CAST(replace(r.locator, 'line=', '') AS BIGINT)) AS line
    FROM ras_ranks r JOIN sources s USING (source_id) GROUP BY s.path
), steps AS (
    SELECT last.path, p.series, p.step, p.locator > last.line AS below
    FROM log_progress p JOIN sources s USING (source_id) JOIN last ON last.path = s.path WHERE last.line IS NOT NULL
)
SELECT 1 FROM steps GROUP BY path, series
HAVING min(step) FILTER (below) > max(step) FILTER (NOT below) AND count(DISTINCT step) FILTER (below) > 2
"""


def trained_on(connection: DuckDBPyConnection) -> bool:
    """Whether steps went on below the last report in a text."""
    return bool(rows_of(connection, "ras_ranks", _TRAINED_ON))
