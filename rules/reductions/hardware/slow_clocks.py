"""Hosts whose cores are held down: even the fastest one runs far below those of the other hosts.

Idle cores run slowly on any host, so the middle clock tells nothing; the fastest of them is one that has work (`mhz` of `cpu`
in node.json, from /proc/cpuinfo).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import Evidence
from forensics.rules.reductions.hardware.apart import usual_beside
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.roster import Roster

# Of the usual clock: turbo stages differ by less.
_HELD = 0.7
_CLOCKS = """
SELECT s.host, max(try_cast(json_extract_string(try_cast(c.value AS JSON), '$.mhz.max') AS DOUBLE)) AS mhz, min(s.path)
FROM job_config c JOIN sources s USING (source_id) WHERE c.key = 'node.cpu' AND s.host IS NOT NULL
GROUP BY s.host HAVING mhz > 0 ORDER BY s.host
"""


@dataclass(frozen=True, slots=True)
class SlowClock:
    """A host whose fastest core runs at `mhz`, those of other hosts at `usual` (median)."""

    host: str
    mhz: float
    usual: float
    source: str


SlowClocks = NewType("SlowClocks", Mapping[str, SlowClock])
"""Hosts whose cores are held down, by host."""


@reduction
def slow_clocks(connection: DuckDBPyConnection) -> SlowClocks:
    """By host; what is so on most hosts is how the machines are."""
    rows = rows_of(connection, "job_config", _CLOCKS)
    usual = usual_beside({host: mhz for host, mhz, _ in rows})
    return SlowClocks(
        {
            host: SlowClock(host, mhz, usual[host], path)
            for host, mhz, path in rows
            if host in usual and mhz <= _HELD * usual[host]
        }
    )


def held_down_cores(ranks: Collection[int], clocks: SlowClocks, roster: Roster) -> Iterator[Evidence]:
    """That the cores of the one host of some slow ranks are held down; it accuses nobody by itself."""
    hosts = {roster.host_of(rank) or "" for rank in ranks}
    if len(hosts) == 1 and (found := clocks.get(hosts.pop())):
        mine, usual = found.mhz / 1e3, found.usual / 1e3
        said = f"the fastest core of {found.host} runs at {mine:.1f} GHz, those of other hosts at {usual:.1f} GHz (median)"
        yield Evidence(f"{said}: it is held down, or of a slower model", found.source)
