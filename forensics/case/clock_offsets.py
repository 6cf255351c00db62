"""How far the clocks of hosts are apart: measured while they were collected from, else bounded by the calls of the job."""

from __future__ import annotations

from duckdb import DuckDBPyConnection

from forensics.case.clock_bounds import derived_offsets
from forensics.case.database import rows_of
from forensics.model import ClockOffsetRow

# The offsets of the reference that most hosts are compared with; of several of one host, the narrowest.
_OFFSETS = """
WITH known AS (SELECT host, reference, offset_ns, bound_ns, method FROM clocks
               WHERE reference IS NOT NULL AND offset_ns IS NOT NULL),
     chosen AS (SELECT reference FROM known GROUP BY reference ORDER BY count(DISTINCT host) DESC, reference LIMIT 1)
SELECT DISTINCT ON (host) host, reference, offset_ns, bound_ns, method FROM known JOIN chosen USING (reference)
ORDER BY host, bound_ns IS NULL, bound_ns, offset_ns, method
"""


def clock_offsets(connection: DuckDBPyConnection) -> tuple[ClockOffsetRow, ...]:
    """One row for each host whose clock was compared with that of one reference, by host."""
    measured = tuple(ClockOffsetRow(*row) for row in rows_of(connection, "clocks", _OFFSETS))
    return measured or derived_offsets(connection)
