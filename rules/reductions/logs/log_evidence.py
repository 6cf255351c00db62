"""What logs alone tell of a job: how far each rank got, whether it stood still at all, and how processes ended.

A watchdog, a transfer or a store that timed out proves that somebody waited; whoever says so first has only the shortest
timeout. After a cancel nothing counts: ranks are ended one after the other, wherever they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from duckdb import DuckDBPyConnection

from forensics.case.database import has_rows, rows_of
from forensics.rules.reductions.calls.positions import Communicator
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.logs.ends import exits
from forensics.rules.reductions.logs.failures import Failures, failures
from forensics.rules.reductions.logs.files_apart import with_logs_of_the_run
from forensics.rules.reductions.logs.first_ends import first_ends
from forensics.rules.reductions.logs.gave_up import gave_up
from forensics.rules.reductions.logs.lost_connections import Loss, NicFault, links_lost, lost_connections, nic_faults
from forensics.rules.reductions.logs.positions import LoggedGroup, logged_groups
from forensics.rules.reductions.logs.process_exit import Exit
from forensics.rules.reductions.logs.raised import Failure
from forensics.rules.reductions.logs.reports import reported_operations
from forensics.rules.reductions.ranks.roster import CaseRoster, RankFacts, Roster

TIMEOUTS = (
    *("watchdog_timeout", "watchdog_report", "transfer_timeout", "store_timeout", "dump_signal", "watchdog_stuck"),
    *("stall_report", "barrier_timeout", "desync_report"),
)
"""Kinds of log events that only a job that stands still writes."""


OF_THE_JOB = """
text NOT LIKE '%setting DOWN%' AND text NOT LIKE '%NodeNot%' AND NOT EXISTS (
    SELECT 1 FROM log_progress p WHERE p.source_id = logged_event.source_id AND p.locator > logged_event.locator
)
"""
"""Of lost nodes: a scheduler's own log tells of all nodes of a cluster, and a job that was started again goes on below."""
_LOST_NODE = f"""
SELECT min(source) FROM logged_event
WHERE (kind = 'node_failed' OR (kind = 'job_cancelled' AND subject LIKE '%DUE TO NODE FAILURE%')) AND {OF_THE_JOB}
"""


@dataclass(frozen=True, slots=True)
class Logged:
    """Everything the logs of a case tell.

    `failures` are the errors by which ranks ended, `odd_sizes` is set when some rank met sizes that do not fit.
    `reports` are operations of which a library said who came, or all ranks but one that they gave up in it.
    `ranks` wrote or are spoken of in some log, with their hosts where known; `places` are hosts of others too. `timed_out` maps
    a rank to the line that says it gave up waiting; the watchdogs of those that are `stuck` could not. `cancels` are the lines
    that say the job was ended from outside, `losses` the connections that were lost, `links_lost` the links that kernels say
    were. `lost_node` is the line that says that a node of the job was lost, `unplaced` are processes of NCCL whose ranks are
    unknown.
    """

    groups: tuple[LoggedGroup, ...] = ()
    reports: tuple[Communicator, ...] = ()
    ranks: Mapping[int, str | None] = field(default_factory=dict)
    places: Mapping[int, str] = field(default_factory=dict)
    exits: tuple[Exit, ...] = ()
    timed_out: Mapping[int, str] = field(default_factory=dict)
    stuck: frozenset[int] = frozenset()
    failures: Failures = field(default_factory=Failures)
    odd_sizes: bool = False
    stalled: bool = False
    cancels: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()
    nic_faults: tuple[NicFault, ...] = ()
    links_lost: tuple[NicFault, ...] = ()
    world_size: int | None = None
    lost_node: str | None = None
    unplaced: int = 0

    @property
    def overdue(self) -> bool:
        """Whether a report speaks of ranks because a limit has passed in which they had to come."""
        return any(report.overdue for report in self.reports)

    @property
    def of_the_run(self) -> frozenset[int]:
        """Ranks whose own logs speak of a communicator of NCCL that some who gave up speak of: it has one name in one run."""
        named = (set(group.positions) for group in self.groups if group.origin == "nccl")
        return frozenset(rank for ranks in named if not ranks.isdisjoint(self.timed_out) for rank in ranks)

    @property
    def how_it_ended(self) -> str:
        """What is known of the end of a job of which nobody is named."""
        if self.failures.interrupted and not self.lost_node:
            said = f"somebody interrupted the job (KeyboardInterrupt), says {self.failures.interrupted}"
            return f"{said}; no rank had an error of its own"
        what = f"a node of the job was lost, says {self.lost_node}" if self.lost_node else "a process ended"
        return f"{what}, and which rank failed first is unknown"

    @property
    def first_ends(self) -> tuple[Exit, ...]:
        """The ends of ranks that nothing else explains."""
        return first_ends(self.exits, self.failures, self.timed_out, self.stalled, self.odd_sizes)


_SPOKEN = """
SELECT rank, min(host) FROM (
    SELECT rank, CASE WHEN origin IN ('watchdog', 'nccl') THEN host END AS host FROM log_positions
    UNION ALL SELECT rank, host FROM log_events WHERE NOT starts_with(kind, 'earlier_')
    UNION ALL SELECT rank, host FROM sources WHERE kind IN ('training_log', 'nccl_log')
) WHERE rank IS NOT NULL GROUP BY rank ORDER BY rank
"""
_PLACED = """
SELECT rank, min(host) FROM process_ranks WHERE rank IS NOT NULL AND host IS NOT NULL
GROUP BY rank HAVING count(DISTINCT host) = 1
"""
_STATED = "SELECT DISTINCT try_cast(value AS INTEGER) FROM job_config WHERE key = 'log.world_size'"
# A rank whose process the kernel or the driver names is one of the job, whether it wrote a line or not.
_NAMED_BY_KERNEL = """
SELECT DISTINCT p.rank FROM process_ranks p JOIN (
    SELECT host, try_cast(regexp_extract(text, 'pid=''?([0-9]{1,9})', 1) AS BIGINT) AS pid FROM device_events WHERE kind = 'xid'
    UNION ALL SELECT host, try_cast(subject AS BIGINT) FROM log_events WHERE kind IN ('oom_kill', 'hung_task', 'segfault')
) e ON e.pid = p.pid AND coalesce(e.host = p.host, true) WHERE p.rank IS NOT NULL
"""
_EVENTS = f"""
SELECT kind, rank, source FROM logged_event
WHERE kind = 'job_cancelled' OR (kind IN {TIMEOUTS} AND NOT after_cancel)
ORDER BY path, locator
"""
_UNPLACED = """
SELECT DISTINCT host, pid FROM log_positions WHERE origin = 'nccl' AND communicator IS NULL AND rank IS NULL
EXCEPT SELECT host, pid FROM log_positions WHERE origin = 'nccl' AND communicator IS NOT NULL
"""
_STUCK = "SELECT DISTINCT rank FROM log_events WHERE kind = 'watchdog_stuck' AND rank IS NOT NULL"
# The others tell that some rank waited, and not that the one that says so did.
_OWN_TIMEOUTS = ("watchdog_timeout", "transfer_timeout", "store_timeout")


@reduction
def logged(connection: DuckDBPyConnection, known: CaseRoster) -> Logged:
    """Read what the logs of a case tell."""
    places = dict(rows_of(connection, "process_ranks", _PLACED))
    ranks = {rank: host or places.get(rank) for rank, host in connection.execute(_SPOKEN).fetchall()}
    world_size = known.world_size or _stated_world(connection, ranks)
    seen = frozenset(rank for rank, facts in known.ranks.items() if facts.has_stack or facts.has_recorder)
    seen |= {rank for (rank,) in rows_of(connection, "process_ranks", _NAMED_BY_KERNEL)}
    # A watchdog that was stuck could not give up as those of its peers did.
    stuck = frozenset(rank for (rank,) in rows_of(connection, "log_events", _STUCK, kinds=("watchdog_stuck",)))
    seen |= stuck
    of_the_run = with_logs_of_the_run(connection)
    seen |= of_the_run
    groups = logged_groups(connection, world_size, seen)
    timed_out: dict[int, str] = {}
    cancels: list[str] = []
    stalled = False
    for kind, rank, source in rows_of(connection, "log_events", _EVENTS, kinds=("job_cancelled", *TIMEOUTS)):
        if kind == "job_cancelled":
            cancels.append(source)
            continue
        stalled = True
        if rank is not None and kind in _OWN_TIMEOUTS:
            timed_out.setdefault(rank, source)
    ends = exits(connection)
    return Logged(
        groups=groups,
        reports=(*reported_operations(connection), *gave_up(connection, ranks, ends, of_the_run, world_size)),
        ranks=ranks,
        places=places,
        exits=ends,
        failures=failures(connection, world_size),
        timed_out=timed_out,
        stuck=stuck,
        stalled=stalled,
        cancels=tuple(cancels),
        odd_sizes=has_rows(connection, "log_events", ("size_mismatch",)),
        losses=lost_connections(connection, ranks),
        nic_faults=nic_faults(connection, ranks),
        links_lost=links_lost(connection),
        world_size=world_size,
        lost_node=_lost_node(connection),
        unplaced=len(rows_of(connection, "log_positions", _UNPLACED)),
    )


def _lost_node(connection: DuckDBPyConnection) -> str | None:
    found = rows_of(connection, "log_events", _LOST_NODE, kinds=("node_failed", "job_cancelled"))
    return found[0][0] if found else None


def _stated_world(connection: DuckDBPyConnection, ranks: Mapping[int, str | None]) -> int | None:
    """The size of the job that all logs state alike, when every rank that they speak of fits."""
    sizes = [size for (size,) in rows_of(connection, "job_config", _STATED, kinds=("log.world_size",))]
    return sizes[0] if len(sizes) == 1 and sizes[0] > max(ranks, default=0) else None


def shows_the_end(roster: Roster, heard: Logged) -> bool:
    """Whether a job that left nothing but logs ended, by these: what ranks do shows more, where anything shows it."""
    ended = heard.failures.ended is not None and not heard.cancels
    return (ended or heard.lost_node is not None) and only_logs(roster)


def only_logs(roster: Roster) -> bool:
    """Whether nothing was collected but logs, and tables of processes of which no time is known."""
    facts = roster.ranks.values()
    return not any(f.has_recorder or f.has_stack or f.state or f.sampled or f.stopped for f in facts)


def heard_in_logs(roster: Roster, heard: Logged) -> Roster:
    """The roster with the ranks that logs speak of, and, where nothing but logs is left, how their launcher saw them end.

    Where anything else was collected it knows better of the ranks that it is of, and of the size of the job.
    """
    if not only_logs(roster):
        return _with_heard(roster, heard)
    world = heard.world_size or next((group.size for group in heard.groups if group.world and group.exact), None)
    ends = {end.rank: end for end in heard.first_ends}
    failed = heard.failures.firsts
    # Of a launcher that saw another one end by an error, it is not known which of the two came first.
    ends = ends if not failed or failed.keys() & ends.keys() or any(end.code < 0 for end in ends.values()) else {}
    ranks = {
        rank: ended(
            _spoken_of(roster, heard, rank), ends.get(rank), failed.get(rank) if not ends.keys() - failed.keys() else None
        )
        for rank in sorted({*roster.ranks, *heard.ranks, *ends, *range(world or 0), *failed})
    }
    return Roster(ranks, world)


def _with_heard(roster: Roster, heard: Logged) -> Roster:
    """What else was collected may be of a few ranks; those of the groups that logs speak of are of the job all the same."""
    members = {rank for group in heard.groups for rank in group.members}
    if not roster.ranks.keys() <= members or roster.world_size is not None:
        return roster
    world = next((group.size for group in heard.groups if group.world and group.exact), None)
    ranks = {rank: _spoken_of(roster, heard, rank) for rank in sorted({*roster.ranks, *members, *range(world or 0)})}
    return Roster(ranks, world)


def _spoken_of(roster: Roster, heard: Logged, rank: int) -> RankFacts:
    known = roster.ranks.get(rank, RankFacts(rank))
    given_up = known.timed_out or rank in heard.timed_out
    host = known.host or heard.ranks.get(rank) or heard.places.get(rank)
    return replace(known, host=host, timed_out=given_up, of_the_run=rank in heard.of_the_run)


def ended(facts: RankFacts, end: Exit | None, failed: Failure | None) -> RankFacts:
    """The rank as its launcher saw it end, else as an error in its own log says that it did."""
    if end is None and failed is not None:
        return replace(facts, state="absent", state_source=failed.source, error=failed.text)
    if end is None:
        return facts
    if end.why is not None:
        return replace(facts, state="absent", state_source=end.source, error=end.why)
    code = None if end.code < 0 else end.code
    signal = -end.code if end.code < 0 else None
    ended = replace(facts, state="absent", pid=end.pid, exit_code=code, exit_signal=signal, state_source=end.source)
    return replace(ended, host=facts.host or end.host)
