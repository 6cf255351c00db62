"""Which part of its steps each rank is inside collectives: what it waits there, or what they take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.frontier.waits import TIMED_CALLS
from forensics.rules.reductions.interface import reduction

InCalls = NewType("InCalls", Mapping[int, float])
"""Share of the recorded steps (0 to 1) by rank; calls that run side by side count once."""

_SHARES = f"""
WITH lasting AS (
    SELECT rank, min(begin_ns) AS begin_ns, max(end_ns) AS end_ns FROM steps
    WHERE begin_ns IS NOT NULL AND end_ns IS NOT NULL GROUP BY rank
), calls AS ({TIMED_CALLS}), within AS (
    SELECT c.rank, greatest(c.begun, l.begin_ns) AS begun, least(c.begun + c.lasted, l.end_ns) AS ended,
        l.end_ns - l.begin_ns AS length
    FROM calls c JOIN lasting l USING (rank) WHERE c.begun < l.end_ns AND c.begun + c.lasted > l.begin_ns
), covered AS (
    SELECT rank, length, ended - greatest(begun, coalesce(max(ended) OVER before, begun)) AS more FROM within
    WINDOW before AS (PARTITION BY rank ORDER BY begun, ended ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)
SELECT rank, sum(greatest(more, 0)) / any_value(length) FROM covered WHERE length > 0 GROUP BY rank ORDER BY rank
"""


@reduction
def in_calls(connection: DuckDBPyConnection) -> InCalls:
    """Read the steps and the calls of each rank, on its own clock."""
    return InCalls({rank: float(share) for rank, share in rows_of(connection, "steps", _SHARES)})
