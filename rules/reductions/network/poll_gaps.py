"""Proxies that do not look at their queue pairs for long at a time: what they see late looks like a slow NIC.

A proxy that runs polls every few microseconds. While it is not scheduled, completions and arrivals lie there: its own sends
seem to stay at the NIC for longer, and buffers are offered late. The collector notes by how much a completion may have been
seen late, the most since the sample before, and in the state it left; what is usual for a rank is the median of these.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from duckdb import DuckDBPyConnection

# Turns of a busy host's scheduler are shorter; fewer samples may be those of one bad moment.
_LEAST_GAP_NS, _LEAST_SAMPLES = 1_000_000, 3
# Times the gap that is usual on the other ranks: where hosts are busy everywhere, it is nobody's.
_FACTOR = 10.0

_GAPS = """
SELECT rank, median(poll_gap_ns), count(*) >= $least FROM wr_samples
WHERE list_contains($sources, source_id) AND rank IS NOT NULL AND poll_gap_ns > 0 GROUP BY rank
"""


def poll_gaps(connection: DuckDBPyConnection, sources: Collection[int]) -> Mapping[int, float]:
    """Ranks of the given logs whose usual gap between polls (ns) is long, and many times that of most others."""
    asked = {"sources": sorted(sources), "least": _LEAST_SAMPLES}
    found = connection.execute(_GAPS, asked).fetchall()
    if len(found) <= 1:
        return {}
    limit = max(_LEAST_GAP_NS, _FACTOR * float(np.median([gap for _, gap, _ in found])))
    return {rank: gap for rank, gap, often in sorted(found) if often and gap >= limit}


def longest_gap(connection: DuckDBPyConnection, sources: Collection[int]) -> float:
    """The longest time (ns) for which a proxy of the given logs left a queue pair with work alone; 0 where none did."""
    asked = {"sources": sorted(sources)}
    query = "SELECT max(poll_gap_ns) FROM wr_samples WHERE list_contains($sources, source_id)"
    (found,) = connection.execute(query, asked).fetchall()[0]
    return float(found or 0.0)
