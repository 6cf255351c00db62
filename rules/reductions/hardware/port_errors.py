"""The one port of many whose counters have errors of the link, since they were cleared: a lead, as nothing dates them."""

from __future__ import annotations

from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of

_LEAST_PORTS, _LEAST_ERRORS, _OF_OTHERS = 3, 100, 0.01
_PORTS = """
SELECT coalesce(c.host, s.host), s.path, c.device, max(c.value) AS errors, arg_max(c.counter, c.value)
FROM counters c JOIN sources s USING (source_id)
WHERE c.counter IN ('symbol_error', 'link_error_recovery', 'port_rcv_errors', 'local_link_integrity_errors')
GROUP BY ALL ORDER BY errors DESC, s.path, c.device
"""
# A tool that lists ports with errors alone says how many it looked at.
_CHECKED = "SELECT max(value) FROM counters WHERE counter = 'ports_checked' HAVING max(value) IS NOT NULL"


@dataclass(frozen=True, slots=True)
class PortErrors:
    """A port with `errors` by `counter`, of `others` ports that have next to none."""

    host: str | None
    device: str
    counter: str
    errors: int
    others: int
    path: str


def port_errors(connection: DuckDBPyConnection) -> PortErrors | None:
    """The one port, if there is one: a network that is bad everywhere accuses no port of it."""
    ports = rows_of(connection, "counters", _PORTS)
    looked_at = max(len(ports), *(int(count) for (count,) in rows_of(connection, "counters", _CHECKED)), 0)
    if not ports or looked_at < _LEAST_PORTS or ports[0][3] < _LEAST_ERRORS:
        return None
    if len(ports) > 1 and ports[1][3] > _OF_OTHERS * ports[0][3]:
        return None
    host, path, device, errors, counter = ports[0]
    return PortErrors(host, device, counter, int(errors), looked_at - 1, path)
