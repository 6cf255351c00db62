"""Hosts that had next to no memory left when somebody looked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import Evidence
from forensics.rules.reductions.interface import reduction

# Below this share the kernel has begun to reclaim what processes use.
_LEAST_AVAILABLE = 0.05

ShortMemory = NewType("ShortMemory", Mapping[str | None, Evidence])
"""What the newest reading of each host says, where it is short; None for a host that nothing tells."""


@reduction
def short_memory(connection: DuckDBPyConnection) -> ShortMemory:
    """Compare what is available with what there is."""
    rows = rows_of(
        connection,
        "counters",
        """
        SELECT host, path, whole, available FROM (
            SELECT coalesce(c.host, s.host) AS host, s.path AS path, s.captured_ns AS captured_ns, c.sample AS sample,
                max(value) FILTER (counter = 'memory_bytes') AS whole,
                max(value) FILTER (counter = 'memory_available_bytes') AS available
            FROM counters c JOIN sources s USING (source_id) WHERE c.device = 'memory' GROUP BY ALL
        ) QUALIFY row_number() OVER (PARTITION BY host ORDER BY captured_ns DESC NULLS LAST, path DESC, sample DESC) = 1
        """,
    )
    return ShortMemory(
        {
            host: Evidence(f"{100 * available / whole:.1f} % of the memory of {host or 'a host'} were available", path)
            for host, path, whole, available in rows
            if whole and available is not None and available < _LEAST_AVAILABLE * whole
        }
    )
