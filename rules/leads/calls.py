"""Where to look first when calls did not fit and only a log tells: two that differ, or a message that gloo refused.

Of two ranks whose calls differ either may be wrong. The rank that aborts received more than gloo expected: it is in a call of
its own, or its sender is (gloo/transport/tcp/pair.cc).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from duckdb import DuckDBPyConnection

from forensics.case.database import only_row, rows_of
from forensics.rules.reductions.logs.gave_up import places_of_errors
from forensics.rules.reductions.mismatch.logged_mismatches import LoggedMismatches
from forensics.rules.reductions.text.evidence_text import ranks_text

_MOST = 8
_SHOWN = 3
_REFUSED = """
SELECT subject, source FROM logged_event WHERE kind = 'size_mismatch' AND rank IS NULL AND subject IS NOT NULL
ORDER BY path, locator LIMIT 2
"""
_ABORTED = """
SELECT DISTINCT rank FROM log_events WHERE kind = 'process_exit' AND rank IS NOT NULL AND starts_with(subject, 'exitcode=-6 ')
"""
_NEAR = "SELECT subject, min(source) FROM logged_event WHERE kind = 'mismatch_near' GROUP BY subject ORDER BY subject"


def mismatch_near(connection: DuckDBPyConnection) -> Iterator[str]:
    """One number that old releases of NCCL name: its rank, or one beside it in the communicator, made another call."""
    if row := only_row(connection, "log_events", _NEAR, kinds=("mismatch_near",)):
        number, source = row
        how = "logs with NCCL_DEBUG_SUBSYS=COLL show them"
        yield f"the calls of number {number} of the communicator and of those beside it ({source}), one of which differs: {how}"


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


def differing_calls(mismatches: LoggedMismatches) -> Iterator[str]:
    """Calls under one number that differ where no majority says which of them is right."""
    for mismatch in mismatches:
        if not mismatch.tied:
            continue
        made: dict[str, list[int]] = {}
        for rank, call in sorted(mismatch.calls.items()):
            made.setdefault(call.signature.strip(), []).append(rank)
        whose = ranks_text(sorted(mismatch.calls))
        source = next(iter(mismatch.calls.values())).source
        calls = [f"{ranks_text(ranks)} made {call}" for call, ranks in made.items()]
        others = f" and {len(calls) - _SHOWN} others" if len(calls) > _SHOWN else ""
        listed = f"{', '.join(calls[:_SHOWN])}{others}"
        said = listed if len(made) > 1 else f"they count their {next(iter(made))} differently"
        yield f"what {whose} ran before this call: {said} ({source}); which of them is wrong is not known"
