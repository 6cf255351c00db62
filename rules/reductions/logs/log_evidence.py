"""What logs alone tell of a job: how far each rank got, whether it stood still at all, and how processes ended.

A watchdog, a transfer or a store that timed out proves that somebody waited; whoever says so first has only the shortest
timeout. After a cancel nothing counts: ranks are ended one after the other, wherever they are.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.calls.positions import LoggedPositions
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.logs.lost_connections import Loss, lost_connections
from forensics.rules.reductions.logs.positions import LoggedGroup, as_communicator, logged_groups
from forensics.rules.reductions.ranks.roster import CaseRoster, RankFacts, Roster

TIMEOUTS = ("watchdog_timeout", "transfer_timeout", "store_timeout", "dump_signal")
"""Kinds of log events that only a job that stands still writes."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a launcher saw a rank end; `first` marks the one it saw fail first."""

    rank: int
    code: int
    pid: int | None
    first: bool
    source: str


@dataclass(frozen=True, slots=True)
class Logged:
    """Everything the logs of a case tell.

    `raised` are ranks with an exception of their own, `odd_sizes` is set when some rank met sizes that do not fit.
    `ranks` wrote or are spoken of in some log, with their hosts where known. `timed_out` maps a rank to the line that
    says it gave up waiting. `cancels` are the lines that say the job was ended from outside,
    `losses` the connections that were lost.
    """

    groups: tuple[LoggedGroup, ...] = ()
    ranks: Mapping[int, str | None] = field(default_factory=dict)
    exits: tuple[Exit, ...] = ()
    timed_out: Mapping[int, str] = field(default_factory=dict)
    raised: frozenset[int] = frozenset()
    odd_sizes: bool = False
    stalled: bool = False
    cancels: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()


_SPOKEN = """
SELECT rank, min(host) FROM (
    SELECT rank, host FROM log_positions UNION ALL SELECT rank, host FROM log_events
    UNION ALL SELECT rank, host FROM sources WHERE kind IN ('training_log', 'nccl_log')
) WHERE rank IS NOT NULL GROUP BY rank ORDER BY rank
"""
# A rank that a launcher ends is seen after the cancel; only what the same log says before it counts.
_EXITS = """
SELECT l.rank, l.subject, s.path || '#line=' || l.locator
FROM log_events l JOIN sources s USING (source_id)
WHERE l.kind = 'process_exit' AND l.rank IS NOT NULL AND l.subject LIKE 'exitcode=%'
    AND NOT EXISTS (SELECT 1 FROM log_events c WHERE c.kind = 'job_cancelled' AND c.source_id = l.source_id
        AND c.locator < l.locator)
ORDER BY l.rank, s.path, l.locator
"""
_RAISED = """
SELECT DISTINCT rank FROM log_events WHERE kind IN ('exception', 'fatal_error', 'worker_exit') AND rank IS NOT NULL
"""
_ODD_SIZES = "SELECT count(*) FROM log_events WHERE kind = 'size_mismatch'"
_EVENTS = """
SELECT l.kind, l.rank, s.path || '#line=' || l.locator FROM log_events l JOIN sources s USING (source_id)
WHERE l.kind IN ('job_cancelled', 'watchdog_timeout', 'transfer_timeout', 'store_timeout', 'dump_signal')
    AND (l.kind = 'job_cancelled' OR NOT EXISTS (SELECT 1 FROM log_events c WHERE c.kind = 'job_cancelled'
        AND c.source_id = l.source_id AND c.locator < l.locator))
ORDER BY s.path, l.locator
"""
_ENDED_BY_LAUNCHER = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_EXIT = re.compile(r"exitcode=(-?\d{1,5}) pid=(\d{1,9})( first)?")


@reduction
def logged(connection: DuckDBPyConnection, known: CaseRoster) -> Logged:
    """Read what the logs of a case tell."""
    groups = logged_groups(connection, known.world_size)
    ranks = dict(connection.execute(_SPOKEN).fetchall())
    timed_out: dict[int, str] = {}
    cancels: list[str] = []
    stalled = False
    for kind, rank, source in connection.execute(_EVENTS).fetchall():
        if kind == "job_cancelled":
            cancels.append(source)
            continue
        stalled = True
        if rank is not None and kind != "dump_signal":
            timed_out.setdefault(rank, source)
    return Logged(
        groups=groups,
        ranks=ranks,
        exits=tuple(_exits(connection)),
        timed_out=timed_out,
        stalled=stalled,
        cancels=tuple(cancels),
        raised=frozenset(rank for (rank,) in connection.execute(_RAISED).fetchall()),
        odd_sizes=connection.execute(_ODD_SIZES).fetchall()[0][0] > 0,
        losses=lost_connections(connection, ranks),
    )


@reduction
def logged_positions(logged: Logged) -> LoggedPositions:
    """Where each rank stands by the numbers in its log."""
    return LoggedPositions(tuple(map(as_communicator, logged.groups)))


def _exits(connection: DuckDBPyConnection) -> Iterable[Exit]:
    """The end of each rank; of several, the one its launcher saw first."""
    found: dict[int, Exit] = {}
    for rank, subject, source in connection.execute(_EXITS).fetchall():
        match = _EXIT.match(subject)
        if match:
            end = Exit(rank, int(match[1]), int(match[2]), match[3] is not None, source)
            if rank not in found or end.first:
                found[rank] = end
    return found.values()


def heard_in_logs(roster: Roster, heard: Logged) -> Roster:
    """The roster of a job that left nothing but logs: ranks that logs speak of, and how their launcher saw them end.

    Where anything else was collected the roster stays as it is: processes, dumps and stacks know better.
    """
    facts = roster.ranks.values()
    if any(f.has_recorder or f.has_stack or f.state or f.thread_states for f in facts):
        return roster
    world = roster.world_size or next((group.size for group in heard.groups if group.world and group.exact), None)
    ends = {end.rank: end for end in heard.exits if not _follows(heard, end)}
    ranks = {
        rank: _ended(_spoken_of(roster, heard, rank), ends.get(rank))
        for rank in sorted({*roster.ranks, *heard.ranks, *range(world or 0)})
    }
    return Roster(ranks, world)


def _follows(heard: Logged, end: Exit) -> bool:
    """Whether the end says nothing of the rank: another one failed before it, it gave up waiting, or it met odd sizes.

    An abort that nothing in its log explains is mostly that of a watchdog.
    """
    table = end.source.partition("#")[0]
    if not end.first and any(other.first and other.source.partition("#")[0] == table for other in heard.exits):
        return True
    if end.code == -signal.SIGABRT and end.rank not in heard.raised:
        return True
    return -end.code in _ENDED_BY_LAUNCHER or (
        end.code in (1, -signal.SIGABRT) and (end.rank in heard.timed_out or heard.odd_sizes)
    )


def _spoken_of(roster: Roster, heard: Logged, rank: int) -> RankFacts:
    known = roster.ranks.get(rank, RankFacts(rank))
    return replace(known, host=known.host or heard.ranks.get(rank), timed_out=known.timed_out or rank in heard.timed_out)


def _ended(facts: RankFacts, end: Exit | None) -> RankFacts:
    if end is None:
        return facts
    code = None if end.code < 0 else end.code
    signal = -end.code if end.code < 0 else None
    return replace(facts, state="absent", pid=end.pid, exit_code=code, exit_signal=signal, state_source=end.source)
