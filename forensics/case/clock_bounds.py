"""How far clocks of hosts can be apart at most, from calls that nobody leaves before all have entered.

Of two hosts in one call, the time at which one is done is not before the time at which the other entered. So the clock of B is
ahead of that of A by at most what B's end is after A's begin, in each call; over many calls and hosts the least such sums are
the bounds. What a recorder sees late only widens them. Calls of the last minute count: clocks drift.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import ClockOffsetRow

METHOD = "from calls that nobody leaves before all have entered"
MOST_HOSTS = 256
"""The calls of larger jobs take seconds to compare."""
# For each communicator, all its hosts are held against the first: by how much the clock of `b` can be ahead of that of `a`.
_AHEAD = """
WITH places AS (SELECT rank, min(host) AS host FROM ranks WHERE host IS NOT NULL GROUP BY rank HAVING count(DISTINCT host) = 1),
calls AS MATERIALIZED (
    SELECT communicator, kind, sequence, places.host, max(coalesce(enqueued_ns, entered_ns)) AS begun,
        min(device_end_ns) AS ended
    FROM operations JOIN places USING (rank)
    WHERE communicator IS NOT NULL AND sequence IS NOT NULL AND NOT coalesce(is_p2p, false)
      AND (kind LIKE '%all_reduce%' OR kind LIKE '%allreduce%' OR kind LIKE '%all_gather%' OR kind LIKE '%allgather%'
           OR kind LIKE '%reduce_scatter%' OR kind LIKE '%barrier%' OR kind LIKE '%all_to_all%' OR kind LIKE '%alltoall%')
    GROUP BY ALL
),
late AS (SELECT host, max(begun) - 60_000_000_000 AS since FROM calls GROUP BY host),
recent AS MATERIALIZED (SELECT calls.* FROM calls JOIN late USING (host) WHERE begun >= since),
hub AS (SELECT communicator, min(host) AS host FROM recent GROUP BY communicator HAVING count(DISTINCT host) > 1),
pairs AS (
    SELECT hub.host AS a, o.host AS b, min(o.ended - h.begun) AS forth, min(h.ended - o.begun) AS back
    FROM hub JOIN recent h ON h.communicator = hub.communicator AND h.host = hub.host
    JOIN recent o ON o.communicator = h.communicator AND o.kind = h.kind AND o.sequence = h.sequence AND o.host <> h.host
    GROUP BY ALL
)
SELECT a, b, min(forth) FROM pairs WHERE forth IS NOT NULL GROUP BY ALL
UNION ALL SELECT b, a, min(back) FROM pairs WHERE back IS NOT NULL GROUP BY ALL
ORDER BY ALL
"""


def derived_offsets(connection: DuckDBPyConnection) -> tuple[ClockOffsetRow, ...]:
    """Offsets of the hosts that calls join to the first one; hosts whose bounds contradict each other are left out."""
    hosts = rows_of(connection, "ranks", "SELECT DISTINCT host FROM ranks WHERE host IS NOT NULL")
    if not 1 < len(hosts) <= MOST_HOSTS:
        return ()
    return tuple(_rows(connection.execute(_AHEAD).fetchall()))


def _rows(bounds: Sequence[tuple[str, str, int]]) -> Iterator[ClockOffsetRow]:
    import networkx as nx

    ahead = nx.DiGraph()
    ahead.add_weighted_edges_from(bounds)
    _leave_out(ahead)
    if not ahead:
        return
    reference = min(ahead)
    try:
        most = nx.single_source_bellman_ford_path_length(ahead, reference)
        least = nx.single_source_bellman_ford_path_length(ahead.reverse(), reference)
    except nx.NetworkXUnbounded:  # along a longer way than between two
        return
    for host in sorted(most.keys() & least.keys() - {reference}):
        low, high = -least[host], most[host]
        yield ClockOffsetRow(host, reference, (low + high) // 2, -(-(high - low) // 2), METHOD)


def _leave_out(ahead: Any) -> None:
    """Take out hosts of which two say that each is behind the other: a clock was set. Of the two, the one with fewer calls."""
    for one, other, most in sorted(ahead.edges.data("weight")):
        if one in ahead and other in ahead and ahead.has_edge(other, one) and most + ahead[other][one]["weight"] < 0:
            ahead.remove_node(min(one, other, key=lambda host: (ahead.degree(host), host)))
