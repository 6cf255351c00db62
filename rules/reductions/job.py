"""The reduced job: everything rules look at, built once from the case."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.activity import Activity
from forensics.rules.reductions.alignments import Parting, partings
from forensics.rules.reductions.arrivals import Lateness, lateness
from forensics.rules.reductions.call_paths import CallPath, call_paths
from forensics.rules.reductions.children import ChildProcess, child_processes
from forensics.rules.reductions.disagreements import Disagreement, disagreements
from forensics.rules.reductions.divergences import Divergence, divergences
from forensics.rules.reductions.habits import broke_habit, kept_habit
from forensics.rules.reductions.liveness import SILENCE_FACTOR, Liveness, Motion, liveness
from forensics.rules.reductions.logged import Logged, heard_in_logs, logged
from forensics.rules.reductions.point_to_point import point_to_point_waits
from forensics.rules.reductions.positions import Communicator, communicators
from forensics.rules.reductions.ras import Ras, ras
from forensics.rules.reductions.roster import RankFacts, Roster, roster
from forensics.rules.reductions.samples import Stacks, stacks
from forensics.rules.reductions.unrecorded import joined_by_stack, waits_by_stack
from forensics.rules.reductions.waits import RootKind, Wait, WaitGraph, recorded_waits, wait_graph

# Below a millisecond the order of arrival is the scheduler's.
LEAST_GAP_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One understood log line of a rank or a host; `source` is `path#line=N`."""

    kind: str
    subject: str | None
    text: str
    time_ns: int | None
    source: str


@dataclass(frozen=True, slots=True)
class Job:
    """All reductions of one case.

    `paths` holds the call paths of waiting and disputed operations, `broke_habit` the ranks of cycles whose last call came in
    an order they never used before, `kept_habit` those that used it before; `late` is filled for a job that moves. `available`
    names the kinds of evidence there are: recorder, stacks, processes, logs, ras. `partings` holds, by disputed communicator,
    the call that the odd rank made too much or left out; `children` the child processes of each rank; `logged` what logs tell.
    """

    roster: Roster
    groups: tuple[Communicator, ...]
    stacks: Mapping[int, Stacks]
    graph: WaitGraph
    disagreements: tuple[Disagreement, ...]
    liveness: Liveness
    logs: Mapping[int, tuple[LogEvent, ...]]
    host_logs: tuple[LogEvent, ...]
    paths: Mapping[int, CallPath]
    broke_habit: frozenset[int]
    late: tuple[Lateness, ...]
    available: frozenset[str]
    partings: Mapping[str, Parting] = field(default_factory=dict)
    divergences: tuple[Divergence, ...] = ()
    children: Mapping[int, tuple[ChildProcess, ...]] = field(default_factory=dict)
    ras: Ras | None = None
    kept_habit: frozenset[int] = frozenset()
    logged: Logged = field(default_factory=Logged)

    def rank(self, rank: int) -> RankFacts:
        """Return the facts of a rank; unknown everywhere for a rank without trace."""
        return self.roster.ranks.get(rank) or RankFacts(rank)

    def activity(self, rank: int) -> Activity | None:
        """Newest activity of the rank's main thread."""
        found = self.stacks.get(rank)
        return found.latest if found else None

    def waiters(self, rank: int) -> tuple[int, ...]:
        """Ranks that wait for `rank`, directly or through others."""
        reached: set[int] = set()
        frontier = {rank}
        while frontier:
            frontier = {r for r, whom in self.graph.waits_for.items() if r not in reached and not frontier.isdisjoint(whom)} - {
                rank
            }
            reached |= frontier
        return tuple(sorted(reached))


def reduce_job(connection: DuckDBPyConnection, silence_factor: float = SILENCE_FACTOR) -> Job:
    """Build the reduced job from an aligned case; `silence_factor` is the threshold of `liveness`."""
    known = roster(connection)
    heard = logged(connection, known.world_size)
    ranks = heard_in_logs(known, heard)
    samples = stacks(connection)
    groups = communicators(connection)
    waits = _waits(connection, groups, ranks, samples)
    logs, host_logs = _logs(connection)
    found = disagreements(connection, _sizes_reported(logs))
    called = {op.call_path for wait in waits for op in wait.waiting.values() if op and op.call_path is not None}
    called |= {call.call_path for item in found for call in item.calls.values() if call.call_path is not None}
    graph = wait_graph(waits)
    motion = liveness(connection, ranks, samples, silence_factor)
    counted = ras(connection, ranks.world_size)
    circles = (RootKind.CYCLE, RootKind.ENTANGLED)
    in_cycles = {rank for root in graph.roots if root.kind in circles for rank in root.ranks}
    return Job(
        roster=ranks,
        groups=groups,
        stacks=samples,
        graph=graph,
        disagreements=found,
        liveness=motion,
        logs=logs,
        host_logs=host_logs,
        paths=call_paths(connection, called),
        broke_habit=broke_habit(connection, in_cycles),
        kept_habit=kept_habit(connection, in_cycles),
        late=lateness(connection, LEAST_GAP_NS) if motion.motion is Motion.MOVING else (),
        available=_available(ranks, samples, bool(logs or host_logs or heard.groups)) | ({"ras"} if counted else frozenset()),
        partings=partings(connection, found),
        divergences=divergences(connection, graph, samples, found),
        children=child_processes(connection),
        ras=counted,
        logged=heard,
    )


def _available(ranks: Roster, samples: Mapping[int, Stacks], logs: bool) -> frozenset[str]:
    facts = ranks.ranks.values()
    present = {
        "recorder": any(f.has_recorder for f in facts),
        "stacks": bool(samples),
        "processes": any(f.state or f.thread_states for f in facts),
        "logs": logs,
    }
    return frozenset(kind for kind, there in present.items() if there)


def _waits(
    connection: DuckDBPyConnection, groups: tuple[Communicator, ...], ranks: Roster, samples: Mapping[int, Stacks]
) -> tuple[Wait, ...]:
    """Waits that the recorder shows, then waits that only stacks show."""
    gone = {rank for rank, facts in ranks.ranks.items() if facts.dead and not facts.aborted}
    heard = {rank for rank, facts in ranks.ranks.items() if facts.has_recorder}
    collective = recorded_waits(groups, ranks.ranks.keys(), ignore=gone)
    recorded = joined_by_stack((*collective, *point_to_point_waits(connection, groups, heard, ignore=gone)), ranks, samples)
    return (*recorded, *waits_by_stack(recorded, ranks, samples, gone))


def _sizes_reported(logs: Mapping[int, tuple[LogEvent, ...]]) -> bool:
    return any(event.kind == "size_mismatch" for events in logs.values() for event in events)


def _logs(connection: DuckDBPyConnection) -> tuple[Mapping[int, tuple[LogEvent, ...]], tuple[LogEvent, ...]]:
    rows = connection.execute(
        """
        SELECT l.rank, l.kind, l.subject, l.text, l.time_ns, s.path, l.locator
        FROM log_events l JOIN sources s USING (source_id) ORDER BY s.path, l.locator
        """
    ).fetchall()
    by_rank: dict[int, list[LogEvent]] = defaultdict(list)
    of_hosts: list[LogEvent] = []
    for rank, kind, subject, text, time_ns, path, locator in rows:
        event = LogEvent(kind, subject, text, time_ns, f"{path}#line={locator}")
        (of_hosts if rank is None else by_rank[rank]).append(event)
    return {rank: tuple(events) for rank, events in sorted(by_rank.items())}, tuple(of_hosts)
