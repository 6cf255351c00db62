"""What stands out of a fabric where nobody can be named: an address that nobody reaches, a port slower than its peers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.leads.links import addressed, place
from forensics.rules.reductions.text.evidence_text import counted

# Addresses that processes of several hosts could not connect to.
_UNREACHED = """
SELECT subject, count(DISTINCT host) AS hosts, min(source) FROM logged_event
WHERE kind = 'peer_unreached' AND NOT after_cancel GROUP BY subject ORDER BY subject
"""
# Ports that are up, with what they move (bytes per second); the last look at each.
_RATES = """
SELECT p.device, coalesce(p.host, s.host) AS host, max(p.rate_bytes_per_s) AS rate, min(s.path)
FROM devices p JOIN sources s USING (source_id)
WHERE p.kind = 'port' AND p.rate_bytes_per_s > 0 AND coalesce(p.host, s.host) IS NOT NULL
    AND NOT contains(lower(coalesce(p.state, '')), 'down')
GROUP BY ALL ORDER BY ALL
"""
# The link of the NIC of a host that is slower than both of its ends can be, and how many others were looked at.
_BELOW = """
WITH links AS (
    SELECT p.host, p.device, max(p.rate_bytes_per_s) AS rate, max(c.value) AS most, min(s.path) AS path
    FROM devices p JOIN sources s USING (source_id)
    LEFT JOIN counters c ON c.source_id = p.source_id AND c.host = p.host AND c.device = p.device
        AND c.counter = 'rate_mbits_most'
    WHERE p.kind = 'port' AND p.rate_bytes_per_s > 0 AND p.host IS NOT NULL GROUP BY p.host, p.device)
SELECT host, device, rate, most, path, (SELECT count(*) FROM links) - 1 FROM links WHERE most * 125000 > rate ORDER BY ALL
"""
_LEAST_PEERS, _SLOWER, _LEAST_LINKS = 2, 0.75, 3


def fabric_leads(connection: DuckDBPyConnection) -> Iterator[str]:
    """Each a sentence that says what to get."""
    yield from _unreached(connection)
    yield from tuple(_slow_port(connection)) or _below_its_best(connection)


def _unreached(connection: DuckDBPyConnection) -> Iterator[str]:
    """The one address of which several hosts tell, and none of any other."""
    found = rows_of(connection, "log_events", _UNREACHED, kinds=("peer_unreached",))
    if len(found) == 1 and found[0][1] > 1 and not found[0][0].startswith(("127.", "localhost")):
        ((peer, hosts, source),) = found
        where = addressed(connection, peer)
        yield f"whether {where} is up, its network and the logs of its ranks: {hosts} hosts could not connect to it ({source})"


def _slow_port(connection: DuckDBPyConnection) -> Iterator[str]:
    """The one port that is slower than the ports of its name on all other hosts, which are alike: one name, one use."""
    by_name: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for device, *port in rows_of(connection, "devices", _RATES):
        by_name[device].append(tuple(port))
    slow = [(device, *found) for device, ports in by_name.items() for found in _one_below(ports)]
    if len(slow) == 1:
        ((device, (host, rate, path), usual),) = slow
        others = counted(len(by_name[device]) - 1, "other host")
        what = f"its port runs at {_gbits(rate)} Gb/s ({path}), that of {others} at {_gbits(usual)}"
        yield f"{place(device, host)}, cable and switch port, and the ranks that use it: {what}"


def _below_its_best(connection: DuckDBPyConnection) -> Iterator[str]:
    """One link of several: what most of a fabric lacks is how it was built."""
    found = rows_of(connection, "devices", _BELOW)
    if len(found) == 1 and found[0][-1] >= _LEAST_LINKS:
        ((host, device, rate, most, path, others),) = found
        now = f"its link runs at {_gbits(rate)} Gb/s and could at {most / 1000:g} ({path})"
        what = f"{now}, none of {others} others could run faster"
        yield f"{place(device, host)}, cable and switch port, and the ranks that use it: {what}"


def _one_below(ports: list[tuple[Any, ...]]) -> Iterator[tuple[tuple[Any, ...], int]]:
    """The port far below all others of these, with the rate that all others have."""
    by_rate = sorted(ports, key=lambda port: port[1])
    others = {port[1] for port in by_rate[1:]}
    if len(by_rate) > _LEAST_PEERS and len(others) == 1 and by_rate[0][1] <= _SLOWER * max(others):
        yield by_rate[0], others.pop()


def _gbits(rate: int) -> str:
    return f"{rate * 8 / 1e9:g}"
