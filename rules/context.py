"""What stands around the suspects in a report: groups, timeline, coverage, what was not checked, what would help."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import CoverageRow, Evidence, GroupRow, Suspect, TimelineEntry
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.calls.unread import unread
from forensics.rules.reductions.epochs.captures import NicCaptures
from forensics.rules.reductions.logs.reports import ONE_OPERATION
from forensics.rules.reductions.pipeline.slow_steps import SlowSteps
from forensics.rules.reductions.ranks.roster import RankFacts, RecordedRanks, Roster, SeenProcesses
from forensics.rules.reductions.ranks.shim_logs import ChunkLogs, ShimLogs
from forensics.rules.reductions.ras.report import Ras
from forensics.rules.reductions.stacks.samples import StacksByRank
from forensics.rules.reductions.text.evidence_text import wait_text
from forensics.rules.reductions.waits.combined_positions import Positions
from forensics.rules.reductions.waits.graph import Wait, WaitGraph

# Host collectors whose absence leaves a cause unchecked, and what that cause is.
_HOST_CHECKS = {
    "kernel.log": "kernel log (Xid, OOM kills, hung tasks)",
    "gpu.smi": "GPU state (nvidia-smi)",
    "nccl.ras": "NCCL RAS",
    "ib.counters": "NIC counters",
}
_BY_SOURCE = {"kernel_log": "kernel.log", "nvidia_smi": "gpu.smi", "ib_counters": "ib.counters"}
"""Kinds of loose files that are what a collector of the host would have kept."""
_QUOTED = "SELECT 1 FROM log_events WHERE kind IN ('xid', 'oom_kill', 'hung_task', 'soft_lockup') LIMIT 1"
_STEPS = {"stage_vectors": "stages", "kineto": "traces", "nsight": "traces"}
"""Readers of files that tell what the steps of a rank took, and what these are called."""
_OF_STEPS = "SELECT parser, rank FROM sources WHERE rank IS NOT NULL AND rows > 0 AND parser IN (SELECT unnest(?))"
_MOST_EVENTS = 12
_MOST_WAITS = 3
_MOST_WARNINGS = 1000


def group_rows(groups: Communicators, placed: Positions, graph: WaitGraph) -> tuple[GroupRow, ...]:
    """Communicators somebody waits in, then the others; one row for each operation that is waited in."""
    waits = [_waiting_row(placed, wait) for wait in graph.waits if wait.communicator]
    busy = {row.communicator for row in waits}
    idle = [
        GroupRow(
            group.label,
            group.members,
            group.confidence,
            max(p.entered for p in group.positions.values()),
            None,
            None,
            (),
            (),
            (),
        )
        for group in groups
        if group.label not in busy and group.positions
    ]
    return (*waits, *idle)


def _waiting_row(placed: Positions, wait: Wait) -> GroupRow:
    group = placed.of(wait.communicator)
    operation = next((op for _, op in sorted(wait.waiting.items()) if op), None)
    return GroupRow(
        communicator=group.label,
        members=wait.peers or group.members,
        membership=group.confidence,
        sequence=None if group.unit in ONE_OPERATION else wait.sequence,
        operation=operation.kind if operation else None,
        sizes=operation.sizes if operation else None,
        joined=tuple(sorted(wait.waiting)),
        missing=wait.missing,
        finished=() if wait.peers else group.finished(wait.sequence),
    )


def timeline(connection: DuckDBPyConnection, graph: WaitGraph, roster: Roster) -> tuple[TimelineEntry, ...]:
    """Dated events around the stall: when the waits began, what logs and kernel said, when it was looked at."""
    entries = [*_wait_events(graph, roster), *_log_events(connection), *_captures(connection)]
    return tuple(sorted(entries, key=lambda entry: (entry.time_ns, entry.text)))[:_MOST_EVENTS]


def _wait_events(graph: WaitGraph, roster: Roster) -> Iterator[TimelineEntry]:
    calls = ((_dated(wait), wait) for wait in graph.waits)
    in_order = sorted(((dated, wait) for dated, wait in calls if dated), key=lambda each: each[0])
    for dated, wait in in_order[:_MOST_WAITS]:
        time_ns, rank, source = dated[0]
        yield TimelineEntry(time_ns, roster.host_of(rank), f"rank {rank} is the first to wait in {wait_text(wait)}", source)
        if len(dated) > 1:
            time_ns, rank, source = dated[-1]
            yield TimelineEntry(time_ns, roster.host_of(rank), f"rank {rank} is the last to join {wait_text(wait)}", source)
    if further := in_order[_MOST_WAITS:]:
        (time_ns, rank, source), *_ = further[-1][0]
        text = f"ranks wait in {len(further)} further calls by now, rank {rank} in the last of them"
        yield TimelineEntry(time_ns, roster.host_of(rank), text, source)


def _dated(wait: Wait) -> list[tuple[int, int, str]]:
    """When each rank that waits made its call, the first one first: ns, rank, source."""
    return sorted((op.enqueued_ns, rank, op.source) for rank, op in wait.waiting.items() if op and op.enqueued_ns)


def _log_events(connection: DuckDBPyConnection) -> Iterator[TimelineEntry]:
    rows = rows_of(
        connection,
        "log_events",
        """
        SELECT l.time_ns, l.host, l.rank, l.kind, l.text, s.path, l.locator FROM log_events l JOIN sources s USING (source_id)
        WHERE l.time_ns IS NOT NULL AND l.kind <> 'traceback' AND (s.kind <> 'kernel_log' OR (
            l.time_ns >= coalesce((SELECT min(enqueued_ns) FROM operations), l.time_ns)
            AND (NOT l.kind IN ('oom_kill', 'hung_task', 'soft_lockup', 'segfault')
                OR l.subject IN (SELECT CAST(pid AS VARCHAR) FROM processes UNION SELECT CAST(pid AS VARCHAR) FROM ranks))))
        ORDER BY l.time_ns, s.path, l.locator LIMIT 6
        """,
    )
    for time_ns, host, rank, kind, text, path, line in rows:
        whose = f"rank {rank}: " if rank is not None else ""
        yield TimelineEntry(time_ns, host, f"{whose}{kind}: {text}", f"{path}#line={line}")


def _captures(connection: DuckDBPyConnection) -> Iterator[TimelineEntry]:
    ((first, last),) = rows_of(connection, "coverage", "SELECT min(begin_ns), max(end_ns) FROM coverage") or [(None, None)]
    if first is not None:
        yield TimelineEntry(first, None, "the collection began", None)
    if last is not None:
        yield TimelineEntry(last, None, "the collection ended", None)


def coverage(
    connection: DuckDBPyConnection, roster: Roster, calls: Calls, shim: ShimLogs, captures: NicCaptures
) -> tuple[CoverageRow, ...]:
    """Evidence by kind: what the case holds for each rank, then the collector's own record where there is one."""
    rare = {"shim log": set(shim), "stages": set[int](), "traces": set[int]()}
    for parser, rank in rows_of(connection, "sources", _OF_STEPS, [list(_STEPS)]):
        rare[_STEPS[parser]].add(rank)
    rare["NIC epochs"] = {rank for capture in captures for rank in (capture.rank, *capture.ranks)}
    return (*_held(roster, calls, rare), *_collected(connection))


def _held(roster: Roster, calls: Calls, rare: Mapping[str, set[int]]) -> Iterator[CoverageRow]:
    """Of what few jobs have (`rare`: ranks by kind) nothing is said where no rank has it."""
    ranks = roster.ranks
    kinds = {
        "flight recorder": {rank for rank, facts in ranks.items() if facts.has_recorder and rank not in calls.logged_only},
        "stacks": {rank for rank, facts in ranks.items() if facts.has_stack},
        "process": {rank for rank, facts in ranks.items() if facts.state or facts.thread_states},
    }
    for kind, present in (kinds | {kind: found for kind, found in rare.items() if found}).items():
        absent = tuple((str(rank), _why_absent(ranks[rank])) for rank in sorted(set(ranks) - present))
        yield CoverageRow(kind, "rank", tuple(str(rank) for rank in sorted(present)), (), absent)


def _why_absent(facts: RankFacts) -> str:
    if facts.dead:
        return "no process"
    return "stopped, cannot answer" if facts.stopped else "nothing in this case"


def _collected(connection: DuckDBPyConnection) -> Iterator[CoverageRow]:
    rows = rows_of(
        connection,
        "coverage",
        """
        SELECT scope, kind, coalesce(CAST(rank AS VARCHAR), host), status, coalesce(reason, status) FROM coverage
        QUALIFY row_number() OVER (
            PARTITION BY scope, kind, rank, host ORDER BY status = 'ok', status = 'partial', status, reason) = 1
        ORDER BY scope DESC, kind, rank, host
        """,
    )
    kinds: dict[tuple[str, str], list[tuple[str, str, str]]] = defaultdict(list)
    for scope, kind, subject, status, reason in rows:
        kinds[scope, kind].append((str(subject), status, reason))
    for (scope, kind), subjects in kinds.items():
        yield CoverageRow(
            kind=kind,
            scope=scope,
            present=tuple(subject for subject, status, _ in subjects if status == "ok"),
            partial=tuple(subject for subject, status, _ in subjects if status == "partial"),
            absent=tuple(
                (s, f"{status}: {reason}" if reason != status else status)
                for s, status, reason in subjects
                if status not in ("ok", "partial")
            ),
        )


def not_checked(
    connection: DuckDBPyConnection,
    recorded: RecordedRanks,
    stacks: StacksByRank,
    processes: SeenProcesses,
    ras: Ras,
    calls: Calls,
    slow: SlowSteps,
    shim: ShimLogs,
    chunks: ChunkLogs,
) -> tuple[str, ...]:
    """Kinds of evidence that nobody looked at, in words: not collected is never fine."""
    query = (
        "SELECT kind, host, status, reason FROM coverage WHERE scope = 'host' AND status NOT IN ('ok', 'partial') ORDER BY ALL"
    )
    rows = rows_of(connection, "coverage", query)
    failed = [f"{_HOST_CHECKS[kind]} on {host}: {status}" for kind, host, status, _ in rows if kind in _HOST_CHECKS]
    seen = {kind for (kind,) in rows_of(connection, "coverage", "SELECT DISTINCT kind FROM coverage")}
    if ras:
        seen.add("nccl.ras")
    read = connection.execute("SELECT DISTINCT kind FROM sources WHERE status IN ('ok', 'partial')").fetchall()
    seen |= {_BY_SOURCE[kind] for (kind,) in read if kind in _BY_SOURCE}
    quoted = connection.execute(_QUOTED).fetchall()
    never = [
        f"{what}: {'lines quoted elsewhere only' if quoted and kind == 'kernel.log' else 'not collected'}"
        for kind, what in _HOST_CHECKS.items()
        if kind not in seen
    ]
    missing = {
        "process states: not collected": not processes,
        "stacks: not collected": not stacks,
        "Flight Recorder: not collected": calls.from_shim or not recorded,
        "inside collectives (chunks, flows): shim logs without NCCL profiler data, operations only": bool(shim and not chunks),
        f"critical path of the slow steps: {slow.reason}": bool(slow.reason and not slow.found),
    }
    return (*dict.fromkeys(failed), *never, *(text for text, lacks in missing.items() if lacks), *unread(connection).values())


def warnings(connection: DuckDBPyConnection) -> tuple[Evidence, ...]:
    """What could not be read, with file and position."""
    query = "SELECT DISTINCT message, path, locator FROM ingest_warnings ORDER BY path, locator, message"
    rows = rows_of(connection, "ingest_warnings", query)
    shown = rows[:_MOST_WARNINGS]
    found = [Evidence(message, f"{path}#{locator}" if locator else path, supports=False) for message, path, locator in shown]
    if len(rows) > len(shown):
        found.append(Evidence(f"{len(rows) - len(shown)} more warnings: see ingest_warnings of `forensics query`", None, False))
    return tuple(found)


_LAST = """
SELECT text, path || coalesce('#line=' || locator, '') FROM (
    SELECT l.rank, l.text, s.path, l.locator, 0 AS place, row_number() OVER (PARTITION BY l.rank ORDER BY l.time_ns, s.path,
        l.locator) - count(*) OVER (PARTITION BY l.rank) AS before
    FROM log_events l JOIN sources s USING (source_id) WHERE l.rank IN (SELECT unnest($ranks)) AND l.kind <> 'traceback'
    UNION ALL
    SELECT t.rank, t.text, s.path, NULL, 1, t.place FROM log_tails t JOIN sources s USING (source_id)
    WHERE t.rank IN (SELECT unnest($ranks))
) WHERE before > -$events OR place = 1 ORDER BY rank, place, before
"""
_MOST_RANKS, _MOST_LINES, _LAST_EVENTS = 2, 6, 3


def last_lines(connection: DuckDBPyConnection, suspects: tuple[Suspect, ...]) -> tuple[Evidence, ...]:
    """The last understood lines of the first suspect's ranks, exceptions among them, then the last of their own logs."""
    ranks = list(suspects[0].ranks[:_MOST_RANKS]) if suspects else []
    rows = connection.execute(_LAST, {"ranks": ranks, "events": _LAST_EVENTS}).fetchall() if ranks else []
    lines = {text: Evidence(text, source) for text, source in reversed(rows)}
    return tuple(reversed(lines.values()))[-_MOST_LINES:]
