"""Whether a job that left nothing but logs trained to its end, as its trainer says, and nothing says otherwise.

The line counts where no other training goes on below it in the same log, in each log that has steps or an error. What the
program did after it, such as saving the model, is not known.
"""

from __future__ import annotations

from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.logs.log_evidence import Logged, only_logs
from forensics.rules.reductions.ranks.roster import Roster

# A bar that is full may be drawn again.
_LINES = """
WITH said AS (
    SELECT source_id, max(locator) AS line FROM log_events WHERE kind = 'job_finished' GROUP BY source_id
), trained AS (
    SELECT source_id, max(locator) FILTER (total IS NULL OR step < total) AS line FROM log_progress GROUP BY source_id
    UNION SELECT source_id, NULL FROM log_events WHERE kind IN ('exception', 'fatal_error')
        AND source_id NOT IN (SELECT source_id FROM said UNION SELECT source_id FROM log_progress)
)
SELECT s.line IS NOT NULL AND coalesce(t.line < s.line, true), l.text, l.source
FROM said s FULL JOIN trained t USING (source_id)
LEFT JOIN logged_event l ON l.source_id = s.source_id AND l.locator = s.line AND l.kind = 'job_finished'
ORDER BY l.source
"""


@dataclass(frozen=True, slots=True)
class Finished:
    """The line that says so and its place; neither where the job may have ended otherwise, or not at all."""

    text: str | None = None
    source: str | None = None


@reduction
def finished(connection: DuckDBPyConnection, roster: Roster, heard: Logged) -> Finished:
    """Read it; whatever ended otherwise, waited until a timeout or was cancelled is no job that finished."""
    ended_otherwise = heard.failures.ended or heard.exits or heard.cancels or heard.stalled or heard.reports
    rows = connection.execute(_LINES).fetchall() if only_logs(roster) and not ended_otherwise else []
    if not rows or not all(is_last for is_last, _, _ in rows):
        return Finished()
    _, text, source = rows[0]
    return Finished(text, source)
