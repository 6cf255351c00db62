"""The one link of a NIC that goes down and comes up again and again: what is resent meanwhile makes a job slow."""

from __future__ import annotations

from collections.abc import Iterator

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.leads.links import place
from forensics.rules.reductions.logs.lost_connections import VIRTUAL
from forensics.rules.reductions.text.evidence_text import counted

# Times in a day that a link went down; of other links, this part of it. Twice is a cable that somebody moved.
_LEAST, _OF_OTHERS = 3, 0.34
_LEAST_PORTS = 3
_DAY_NS = 86_400_000_000_000
_DATE = r"[A-Z][a-z][a-z] +\d+|\d{4}-\d\d-\d\d"
# Losses of each link on its newest day with any, where it came up again; during the job, as far as that is known. Files may
# have the same lines.
_LOST = f"""
WITH changes AS (
    SELECT host, device, kind, path, locator, source, coalesce(CAST(time_ns AS VARCHAR), text) AS moment,
           coalesce(CAST(time_ns // {_DAY_NS} AS VARCHAR), regexp_extract(text, '{_DATE}')) AS day
    FROM device_event WHERE kind IN ('link_down', 'link_up') AND NOT regexp_matches(device, '{VIRTUAL}')
        AND coalesce(time_ns >= (SELECT min(enqueued_ns) FROM operations), TRUE)
), days AS (
    SELECT host, device, day, count(DISTINCT moment) FILTER (kind = 'link_down') AS downs,
           count(DISTINCT moment) FILTER (kind = 'link_up') AS ups, arg_max(source, (path, locator)) AS source,
           max((path, locator)) AS newest
    FROM changes GROUP BY ALL
)
SELECT host, device, downs, ups, source FROM days WHERE downs > 0
QUALIFY row_number() OVER (PARTITION BY host, device ORDER BY newest DESC) = 1 ORDER BY downs DESC, host, device
"""
# Ports by how often each lost its link between two reads of its counters.
_COUNTED = """
SELECT coalesce(c.host, s.host) AS host, c.device, CAST(max(c.value) - min(c.value) AS BIGINT) AS downs, min(s.path)
FROM counters c JOIN sources s USING (source_id) WHERE c.counter = 'link_downed'
GROUP BY ALL HAVING count(DISTINCT c.sample) > 1 OR count(DISTINCT c.time_ns) > 1 ORDER BY downs DESC, host, device
"""


def flap_leads(connection: DuckDBPyConnection) -> Iterator[str]:
    """One sentence at most: where several links do so, a switch is at fault, or hosts were started anew."""
    yield from _reported(connection) or _counted(connection)


def _reported(connection: DuckDBPyConnection) -> tuple[str, ...]:
    """By kernel logs."""
    links = rows_of(connection, "device_events", _LOST, kinds=("link_down",))
    if not links or links[0][2] < _LEAST or links[0][3] < links[0][2] - 1:
        return ()
    (host, device, downs, _, source), others = links[0], links[1:]
    if others and others[0][2] > _OF_OTHERS * downs:
        return ()
    return (_lead(device, host, f"its link went down {downs} times in a day and came up again ({source})"),)


def _counted(connection: DuckDBPyConnection) -> tuple[str, ...]:
    """By counters of ports that were read twice: none but this one lost its link between the reads."""
    ports = rows_of(connection, "counters", _COUNTED)
    if len(ports) < _LEAST_PORTS or not ports[0][2] or ports[1][2]:
        return ()
    host, device, downs, path = ports[0]
    lost = f"it lost its link {counted(downs, 'time')} between two reads of its counters ({path})"
    return (_lead(device, host, f"{lost}, none of {len(ports) - 1} other ports did"),)


def _lead(device: str, host: str | None, why: str) -> str:
    return f"cable, transceiver and switch port of {place(device, host or 'its host')}, and the ranks that use it: {why}"
