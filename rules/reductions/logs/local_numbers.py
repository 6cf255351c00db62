"""Whether a number that a launcher counted on its host may be one of several hosts, by the logs beside its own."""

from __future__ import annotations

from duckdb import DuckDBPyConnection

# Logs that differ by numbers in their names from the one in which a launcher counts on its host, as those of several pods do:
# none of them is of one rank, and nothing shows that they are tries of one host one after the other.
_SIBLINGS = r"""
WITH log AS (
    SELECT s.source_id, regexp_replace(s.path, '[0-9]+', '#', 'g') AS shape, min(p.at_s) AS first_s, max(p.at_s) AS last_s
    FROM sources s LEFT JOIN log_progress p ON p.source_id = s.source_id AND p.clock = 'line'
    WHERE s.kind = 'training_log' AND (s.rank IS NULL OR s.rank_method = 'guessed')
        AND s.source_id IN (SELECT source_id FROM log_events UNION ALL SELECT source_id FROM log_progress)
    GROUP BY ALL
)
SELECT 1 FROM log l JOIN log o ON o.shape = l.shape AND o.source_id <> l.source_id
WHERE l.source_id IN (SELECT source_id FROM log_events WHERE kind = 'process_exit' AND subject LIKE '% local_rank=%')
    AND coalesce(l.first_s <= o.last_s AND o.first_s <= l.last_s, true) LIMIT 1
"""


def has_siblings(connection: DuckDBPyConnection) -> bool:
    """Whether such a log is one of several of the same time."""
    return bool(connection.execute(_SIBLINGS).fetchall())
