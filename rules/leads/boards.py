"""Which host to look at first by what its board wrote of its own faults: within the job, by a clock of unknown zone."""

from __future__ import annotations

from collections.abc import Iterator

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of

# An event, the last one that the log of a board holds of a start of the host behind it, and the last dated step of the job.
_EVENTS = """
WITH events AS (
    SELECT host, kind, source, path, locator, substr(text, 21) AS what, epoch(try_cast(substr(text, 1, 19) AS TIMESTAMP)) AS at
    FROM device_event WHERE kind IN ('host_fault', 'host_off', 'host_started')),
steps AS (SELECT max(at_s) AS last FROM log_progress WHERE clock = 'line')
SELECT e.host, e.kind, e.what, e.source, e.at - steps.last,
    EXISTS (SELECT 1 FROM events b WHERE b.path = e.path AND b.host IS NOT DISTINCT FROM e.host AND b.kind = 'host_started'
        AND b.locator > e.locator)
FROM events e, steps WHERE e.kind <> 'host_started' AND e.at IS NOT NULL AND steps.last IS NOT NULL
    AND (e.host IS NULL OR NOT EXISTS (SELECT 1 FROM nodes)
        OR split_part(e.host, '.', 1) IN (SELECT split_part(host, '.', 1) FROM nodes))
ORDER BY ALL
"""
# The most that two zones lie apart, and that lies between the last step and what ended it.
_ZONES_S, _NEAR_S = 15 * 3600, 600


def board_leads(connection: DuckDBPyConnection) -> Iterator[str]:
    """One host. What an operator may do, and what the host was started again behind, has to fit the end of the steps."""
    found: dict[str | None, tuple[list[str], str]] = {}
    kinds = ("host_fault", "host_off")
    for host, kind, what, source, behind_s, is_over in rows_of(connection, "device_events", _EVENTS, kinds=kinds):
        may_differ = kind == "host_fault" and not is_over
        if abs(behind_s) <= (_ZONES_S if may_differ else _NEAR_S):
            said, _ = found.setdefault(host, ([], source))
            said += [] if what in said else [what]
    if len(found) == 1:
        ((host, (said, source)),) = found.items()
        where, what = host or "the host of that log", ", ".join(said[:3])
        yield f"console and kernel log of {where}, and which ranks ran there: its board reports {what} ({source})"
