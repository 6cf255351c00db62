"""Where to look first when a message did not fit and only a log tells: who was in which call when gloo refused it.

The rank that aborts received more than it expected: it is in a call of its own, or its sender is (gloo/transport/tcp/pair.cc).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.logs.gave_up import places_of_errors

_MOST = 8
_REFUSED = """
SELECT subject, source FROM logged_event WHERE kind = 'size_mismatch' AND rank IS NULL AND subject IS NOT NULL
ORDER BY path, locator LIMIT 2
"""
_ABORTED = """
SELECT DISTINCT rank FROM log_events WHERE kind = 'process_exit' AND rank IS NOT NULL AND starts_with(subject, 'exitcode=-6 ')
"""


def refused_message(connection: DuckDBPyConnection) -> Iterator[str]:
    """One message that one rank refused for its size, with where the tracebacks of the others begin to differ."""
    refused = rows_of(connection, "log_events", _REFUSED, kinds=("size_mismatch",))
    aborted = [rank for (rank,) in rows_of(connection, "log_events", _ABORTED, kinds=("process_exit",))]
    if len(refused) != 1 or len(aborted) != 1:
        return
    ((sizes, source),) = refused
    places = places_of_errors(connection)
    others = [f"rank {rank} at {place}" for rank, place in sorted(places.items()) if rank != aborted[0]]
    where = f"; {', '.join(islice(others, _MOST))}" if others else ""
    yield (
        f"the calls that the ranks made last: rank {aborted[0]} received more bytes than it expected ({sizes}, {source}) and "
        f"aborted, so that it or its sender was in another call{where}"
    )
