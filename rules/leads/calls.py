"""Where to look first when calls did not fit and only a log tells: two that differ, or a message that gloo refused.

Of two ranks whose calls differ either may be wrong. The rank that aborts received more than gloo expected: it is in a call of
its own, or its sender is (gloo/transport/tcp/pair.cc).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice

from duckdb import DuckDBPyConnection

from forensics.case.database import only_row, rows_of
from forensics.rules.reductions.logs.gave_up import places_of_errors
from forensics.rules.reductions.mismatch.logged_mismatches import LoggedMismatches
from forensics.rules.reductions.stacks.samples import Sample, StacksByRank
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
# Of each dump that names no rank: what it made under each number of a group, as far as all of these dumps go back.
_UNNAMED = """
WITH made AS (
    SELECT coalesce(o.pg_name, '') AS pg, s.path, o.sequence, min(o.kind) AS kind, bool_or(o.state <> 'done') AS pending
    FROM operations o JOIN sources s USING (source_id)
    WHERE o.rank IS NULL AND s.kind = 'flight_recorder' AND o.sequence IS NOT NULL AND NOT coalesce(o.is_p2p, false)
    GROUP BY ALL HAVING count(DISTINCT o.kind) = 1
), bounds AS (SELECT pg, path, min(sequence) AS first, max(sequence) AS last FROM made GROUP BY pg, path)
SELECT pg, sequence, map_from_entries(list((path, kind) ORDER BY path)), bool_and(pending) FROM made
WHERE sequence >= (SELECT max(first) FROM bounds b WHERE b.pg = made.pg)
GROUP BY pg, sequence ORDER BY pg, sequence
"""
_LEAST_DUMPS = 3
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


def unnamed_dumps(connection: DuckDBPyConnection) -> Iterator[str]:
    """The one of several dumps that name no rank whose call differs from all others', or that lacks the call they wait in.

    A number under which kinds differ is a fault whether the job moves or not. One that lacks the call in which all others have
    stopped is behind, unless it was taken before them.
    """
    every: dict[str, set[str]] = {}
    for group, sequence, made, waits in rows_of(connection, "operations", _UNNAMED):
        dumps = every.setdefault(group, set(made))
        if len(dumps) >= _LEAST_DUMPS and (odd := _odd_one(dumps, made, waits=waits)) is not None:
            path, usual = odd
            own = (
                f"it alone made {made[path]}, all others {usual}"
                if path in made
                else f"it alone lacks {usual}, where all others wait"
            )
            count = f"of {len(dumps)} dumps that name no rank"
            yield f"whose dump {path} is: {count} {own}, as call {sequence} of group {group or '0'}"
            return


def _odd_one(dumps: set[str], made: Mapping[str, str], *, waits: bool) -> tuple[str, str] | None:
    """The dump that stands alone at a number, and what all others made there."""
    (usual, count), *_ = Counter(made.values()).most_common()
    if count != len(dumps) - 1 or not (len(made) == len(dumps) or waits):
        return None
    return next(path for path in sorted(dumps) if made.get(path) != usual), usual


def threads_in_calls(stacks: StacksByRank) -> Iterator[str]:
    """Ranks of which a second thread is in a collective beside the main one: only in groups of their own do these not mix."""
    found: dict[tuple[str, str], list[int]] = {}
    for rank, each in sorted(stacks.items()):
        main = each.latest
        if main is not None and (main.communicating or main.below_autograd):
            inside = [thread for thread in each.latest_threads() if thread.activity.communicating]
            for thread in inside[:1]:
                found.setdefault((main.describe(), _named(thread)), []).append(rank)
    for (at, second), ranks in found.items():
        if 2 * len(ranks) > len(stacks):
            yield (
                f"the process groups of {ranks_text(ranks)}: {second} while the main thread is at {at}; two threads that share "
                "a group mix their calls, so that ranks wait in different ones (of dcp.async_save: process_group=)"
            )


def _named(thread: Sample) -> str:
    name = f" {thread.name}" if thread.name else ""
    return f"thread{name} is at {thread.activity.describe()}"
