"""Where to look first by how far each rank counted its steps, when others gave up waiting."""

from __future__ import annotations

from collections.abc import Iterator

from duckdb import DuckDBPyConnection

from forensics.case.database import has_rows
from forensics.rules.reductions.logs.log_evidence import TIMEOUTS

# The rank that did not give up where all others did, and whose log ends at an earlier step than theirs do.
_BEHIND = f"""
WITH counted AS (
    SELECT p.rank, regexp_replace(p.series, '^[0-9]+ ?', '') AS series, arg_max(p.step, p.locator) AS step, min(s.path) AS path
    FROM log_progress p JOIN sources s USING (source_id) WHERE p.rank IS NOT NULL GROUP BY ALL
), gave_up AS (
    SELECT DISTINCT rank FROM logged_event WHERE kind IN {TIMEOUTS} AND rank IS NOT NULL AND NOT after_cancel
), told AS (SELECT DISTINCT rank FROM log_events WHERE rank IS NOT NULL AND kind NOT IN ('bare_error', 'nccl_warning'))
SELECT o.rank, o.step, o.path, count(*), min(c.step) FROM counted o JOIN counted c ON c.series = o.series AND c.rank <> o.rank
WHERE o.rank NOT IN (SELECT rank FROM told) GROUP BY o.rank, o.series, o.step, o.path
HAVING count(*) >= $least AND min(c.step) = max(c.step) AND o.step < min(c.step)
    AND bool_and(c.rank IN (SELECT rank FROM gave_up)) ORDER BY ALL
"""
_LEAST_OTHERS = 3


def step_leads(connection: DuckDBPyConnection) -> Iterator[str]:
    """One rank; the end of its log may have been lost with it."""
    if not has_rows(connection, "log_progress") or not has_rows(connection, "log_events", TIMEOUTS):
        return
    found = connection.execute(_BEHIND, {"least": _LEAST_OTHERS}).fetchall()
    if len({rank for rank, *_ in found}) == 1:
        rank, step, path, others, count = found[0]
        how = f"it alone did not give up waiting, and its log ends at step {step} ({path}), those of {others} others at {count}"
        yield f"exit code, log and stack of rank {rank}: {how}"
