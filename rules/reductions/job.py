"""The reduced job: everything rules look at, built once from the case."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from duckdb import DuckDBPyConnection

from forensics.model import StageName
from forensics.rules.reductions.calls.brackets import stages_between
from forensics.rules.reductions.calls.lateness import Latenesses, lateness
from forensics.rules.reductions.calls.order_history import habits
from forensics.rules.reductions.calls.positions import Communicator, communicators
from forensics.rules.reductions.calls.shim_calls import enter_calls, untold_ranks
from forensics.rules.reductions.frontier.reading import frontier_windows
from forensics.rules.reductions.frontier.verdicts import FrontierWindow
from forensics.rules.reductions.hardware.causes import Hardware
from forensics.rules.reductions.hardware.cpu import CpuUse, cpu_use
from forensics.rules.reductions.hardware.signs import hardware
from forensics.rules.reductions.logs.log_evidence import Logged, heard_in_logs, logged
from forensics.rules.reductions.mismatch.alignments import Parting, partings
from forensics.rules.reductions.mismatch.disagreements import Disagreement, disagreements
from forensics.rules.reductions.mismatch.divergences import Divergence, divergences
from forensics.rules.reductions.mismatch.miscounts import Miscount, miscounts
from forensics.rules.reductions.network.chunk_flows import Flow, chunk_flows
from forensics.rules.reductions.network.root_flows import standing_flows
from forensics.rules.reductions.network.slowness import Slowness, slowness
from forensics.rules.reductions.network.work_requests import QueuePair, troubled_pairs
from forensics.rules.reductions.progress.liveness import SILENCE_FACTOR, Liveness, liveness
from forensics.rules.reductions.progress.other_sources import going_on
from forensics.rules.reductions.progress.shim_logs import ShimLog, heartbeat_gaps, logged_motion, shim_logs
from forensics.rules.reductions.progress.steps import moving_by_steps
from forensics.rules.reductions.ranks.children import ChildProcess, child_processes
from forensics.rules.reductions.ranks.roster import RankFacts, Roster, roster
from forensics.rules.reductions.ras.report import Ras, ras
from forensics.rules.reductions.stacks.activity import Activity
from forensics.rules.reductions.stacks.call_paths import CallPath, call_paths
from forensics.rules.reductions.stacks.samples import Stacks, stacks
from forensics.rules.reductions.waits.graph import RootKind, Wait, WaitGraph, explained_waits, recorded_waits, wait_graph
from forensics.rules.reductions.waits.point_to_point import point_to_point_waits
from forensics.rules.reductions.waits.unrecorded import joined_by_stack, waits_by_stack

# The collector in a process beats once a second; on a host without a free core a beat comes late, not five in a row.
LEAST_HEARTBEAT_GAP_NS = 5_000_000_000
_CIRCLES = (RootKind.CYCLE, RootKind.ENTANGLED)


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
    names the kinds of evidence there are: recorder, stacks, processes, logs, ras, shim, chunks, work_requests. `partings`
    holds, by disputed communicator, the call that the odd rank made too much or left out; `children` the child processes of
    each rank; `logged` what logs tell; `frontier` the windows of recorded stages. `shim` are the logs of the collector inside
    the processes: calls are taken from them when there is no Flight Recorder (then `calls_from_shim`); `flows` are open flows
    of chunks, `root_flows` those that stand still on their own account, `queue_pairs` those in trouble. `miscounts` are ranks
    of circles that made a call less or more than their peers. `slowness` is what the logs tell of the speed of a job that
    moves, `hardware` what is odd of GPUs and NICs of its ranks, `cpu` what its hosts give it;
    `between` the stage that the calls around awaited hosts tell.
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
    late: Latenesses
    available: frozenset[str]
    partings: Mapping[str, Parting] = field(default_factory=dict)
    divergences: tuple[Divergence, ...] = ()
    children: Mapping[int, tuple[ChildProcess, ...]] = field(default_factory=dict)
    ras: Ras | None = None
    kept_habit: frozenset[int] = frozenset()
    logged: Logged = field(default_factory=Logged)
    shim: Mapping[int, ShimLog] = field(default_factory=dict)
    calls_from_shim: bool = False
    flows: tuple[Flow, ...] = ()
    root_flows: tuple[Flow, ...] = ()
    queue_pairs: tuple[QueuePair, ...] = ()
    frontier: tuple[FrontierWindow, ...] = ()
    miscounts: tuple[Miscount, ...] = ()
    slowness: Slowness = field(default_factory=Slowness)
    hardware: Hardware = field(default_factory=Hardware)
    between: Mapping[int, StageName] = field(default_factory=dict)
    cpu: Mapping[str, CpuUse] = field(default_factory=dict)

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
    shim = shim_logs(connection)
    sources = [log.source_id for log in shim.values()]
    calls_from_shim = enter_calls(connection, sources, shim.keys())
    untold = untold_ranks(connection, sources) if calls_from_shim else frozenset()
    known = _from_logs(roster(connection), shim, untold)
    heard = logged(connection, known.world_size)
    ranks = heard_in_logs(known, heard)
    samples = stacks(connection)
    groups = tuple(replace(group, cut=group.cut | untold) for group in communicators(connection))
    waits = _waits(connection, groups, ranks, samples)
    waits = explained_waits(waits) if calls_from_shim else waits
    logs, host_logs = _logs(connection)
    found = disagreements(connection, _sizes_reported(logs))
    called = {op.call_path for wait in waits for op in wait.waiting.values() if op and op.call_path is not None}
    called |= {call.call_path for item in found for call in item.calls.values() if call.call_path is not None}
    graph = wait_graph(waits)
    windows = frontier_windows(connection, ranks.world_size)
    motion = _logged_motion(shim, ranks, silence_factor) if calls_from_shim else None
    motion = motion or liveness(connection, ranks, samples, silence_factor)
    motion = moving_by_steps(connection, motion, windows, silence_factor)
    motion = going_on(connection, motion, shim, ranks, silence_factor)
    counted = ras(connection, ranks.world_size)
    broke, kept = habits(connection, {rank for root in graph.roots if root.kind in _CIRCLES for rank in root.ranks})
    flows = chunk_flows(connection, sources)
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
        broke_habit=broke,
        kept_habit=kept,
        late=lateness(connection) if motion.may_move else Latenesses(),
        available=_available(
            ranks, {"stacks": samples, "logs": logs or host_logs or heard.groups, "ras": counted, "stages": windows}
        )
        | _hooked(shim),
        partings=partings(connection, found),
        divergences=divergences(connection, graph, samples, found),
        children=child_processes(connection),
        ras=counted,
        logged=heard,
        shim=shim,
        calls_from_shim=calls_from_shim,
        flows=flows,
        root_flows=standing_flows(flows, ranks, graph),
        queue_pairs=troubled_pairs(connection, sources),
        frontier=windows,
        miscounts=miscounts(connection, groups, graph.roots),
        slowness=slowness(connection, sources if motion.may_move else ()),
        hardware=hardware(connection) if motion.may_move else Hardware(),
        cpu=cpu_use(connection) if motion.may_move else {},
        between=stages_between(connection, {rank for root in graph.roots for rank in root.ranks}),
    )


def _from_logs(known: Roster, shim: Mapping[int, ShimLog], untold: frozenset[int]) -> Roster:
    """Note which processes showed no life any more when their log was taken, and whose calls are not all known."""
    gaps = {rank: gap for rank, gap in heartbeat_gaps(shim.values()).items() if gap >= LEAST_HEARTBEAT_GAP_NS}
    ranks = {
        rank: replace(facts, heartbeat_gap_ns=gaps.get(rank), calls_unrecorded=facts.calls_unrecorded or rank in untold)
        for rank, facts in known.ranks.items()
    }
    return replace(known, ranks=ranks)


def _logged_motion(shim: Mapping[int, ShimLog], ranks: Roster, silence_factor: float) -> Liveness | None:
    silent = [rank for rank, facts in ranks.ranks.items() if facts.heartbeat_gap_ns]
    return logged_motion(shim.values(), silence_factor, silent)


def _hooked(shim: Mapping[int, ShimLog]) -> frozenset[str]:
    """Kinds of evidence that the doors of the shim logs gave; a door that was not hooked gave nothing, not zero."""
    doors = frozenset[str]().union(*(log.doors for log in shim.values()))
    named = {"nccl_profiler": "chunks", "verbs": "work_requests"}
    return frozenset(kind for door, kind in named.items() if door in doors) | ({"shim"} if shim else frozenset())


def _available(ranks: Roster, found: Mapping[str, object]) -> frozenset[str]:
    facts = ranks.ranks.values()
    recorder, processes = any(f.has_recorder for f in facts), any(f.state or f.thread_states for f in facts)
    present = {"recorder": recorder, "processes": processes, **found}
    return frozenset(kind for kind, there in present.items() if there)


def _waits(
    connection: DuckDBPyConnection, groups: tuple[Communicator, ...], ranks: Roster, samples: Mapping[int, Stacks]
) -> tuple[Wait, ...]:
    """Waits that the recorder shows, then waits that only stacks show."""
    gone = {rank for rank, facts in ranks.ranks.items() if (facts.dead and not facts.aborted) or facts.heartbeat_gap_ns}
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
