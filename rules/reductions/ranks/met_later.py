"""Ranks of which the collector found no process, and with which peers went on to finish collectives: it missed a living one."""

from __future__ import annotations

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of

# A call may have been finished by all and be noted a moment later; of two, the second was begun after the first dump.
_MET_LATER = """
WITH finished AS (
    SELECT o.communicator, o.rank, s.captured_ns,
           max(o.sequence) FILTER (o.state = 'done') AS newest
    FROM operations o JOIN sources s USING (source_id)
    WHERE o.communicator IS NOT NULL AND s.captured_ns IS NOT NULL AND NOT coalesce(o.is_p2p, false)
        AND regexp_matches(o.kind, '^_?(all_|reduce_scatter|barrier)')
    GROUP BY ALL
), looked AS (
    SELECT rank, min(begin_ns) AS at_ns FROM coverage WHERE rank IS NOT NULL GROUP BY rank
)
SELECT DISTINCT m.rank
FROM members m JOIN looked l ON l.rank = m.rank JOIN finished f ON f.communicator = m.communicator AND f.captured_ns > l.at_ns
WHERE f.rank <> m.rank GROUP BY m.rank, m.communicator, f.rank HAVING max(f.newest) >= min(f.newest) + 2
"""


def met_later(connection: DuckDBPyConnection) -> set[int]:
    """Ranks without which their peers could not have finished what they finished after the collector had looked."""
    return {rank for (rank,) in rows_of(connection, "operations", _MET_LATER)}
