"""Which log of the collector inside the processes speaks for which rank, and until when its process surely lived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NewType

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.interface import reduction

# The collector in a process beats once a second; on a host without a free core a beat comes late, not five in a row.
LEAST_HEARTBEAT_GAP_NS = 5_000_000_000


@dataclass(frozen=True, slots=True)
class ShimLog:
    """The newest log of one rank; times in ns on the realtime clock of its host.

    `begin_ns` is when the log was made, `end_ns` the last heartbeat or record. `copied_ns` is when the file was taken, where
    a manifest tells. `ended` says that the process left in order, `active_ns` is its last call or movement of a chunk,
    `chunk_ns` the latter alone, `pause_ns` the second longest pause between its calls. `hooks` are the kinds of evidence that
    were hooked and saw something; `graphs` says that calls were captured in a CUDA graph, whose replays make no call. `beats`
    says that a heartbeat tells of the process to its end: not where the file was cut, nor where the main thread ended before
    the process.
    """

    rank: int
    source_id: int
    source: str
    host: str | None
    begin_ns: int
    end_ns: int
    copied_ns: int | None
    ended: bool
    active_ns: int | None
    chunk_ns: int | None
    pause_ns: int | None
    hooks: frozenset[str]
    graphs: bool = False
    beats: bool = True


ShimLogs = NewType("ShimLogs", Mapping[int, ShimLog])
"""The log that speaks for each rank."""
ChunkLogs = NewType("ChunkLogs", frozenset[int])
"""Ranks whose log shows chunks; a hook that was not set gave nothing, not zero."""
WorkRequestLogs = NewType("WorkRequestLogs", frozenset[int])
"""Ranks whose log shows work requests."""

# Of a host without a manifest: so many logs of others go on for so long after its own, and all stopped that near to its end.
_LEAST_OTHERS, _LEAST_SILENCE_NS, _AT_ONCE_NS = 2, 10_000_000_000, 2_000_000_000

_LOGS = """
WITH chunks AS (
    SELECT source_id, end_ns AS time_ns FROM flows UNION ALL
    SELECT source_id, time_ns - stuck_ns FROM chunk_states WHERE locator < 0
), active AS (
    SELECT source_id, entered_ns AS time_ns FROM operations UNION ALL FROM chunks
), calls AS (
    SELECT source_id, entered_ns - lag(entered_ns) OVER (PARTITION BY source_id ORDER BY entered_ns) AS pause
    FROM operations WHERE entered_ns IS NOT NULL
)
SELECT s.rank, s.source_id, s.path, s.host, c.begin_ns, c.end_ns, s.captured_ns,
       s.source_id IN (SELECT source_id FROM job_config WHERE key = 'shim.state' AND value = 'ended'),
       (SELECT max(time_ns) FROM active a WHERE a.source_id = s.source_id),
       (SELECT max(time_ns) FROM chunks a WHERE a.source_id = s.source_id),
       (SELECT max(pause, 2)[2] FROM calls p WHERE p.source_id = s.source_id AND pause > 0),
       (SELECT list(kind ORDER BY kind) FROM coverage d WHERE d.source_id = s.source_id AND d.status IN ('ok', 'partial')),
       s.source_id IN (SELECT source_id FROM communicator_states WHERE graph_captured),
       s.source_id NOT IN (SELECT source_id FROM job_config WHERE key = 'shim.state' AND value NOT IN ('recording', 'ended'))
FROM sources s JOIN coverage c ON c.source_id = s.source_id AND c.kind = 'shim_log' AND c.scope = 'rank'
JOIN rank_logs l ON l.source_id = s.source_id
ORDER BY s.rank
"""


@reduction
def shim_logs(connection: DuckDBPyConnection) -> ShimLogs:
    """The newest log of each rank; none at all when two processes were one rank at the same time: these are several jobs."""
    ((count,),) = connection.execute("SELECT count(*) FROM rank_logs").fetchall()
    found = {}
    for *known, hooks, graphs, beats in connection.execute(_LOGS).fetchall() if count else ():
        fields: tuple[Any, ...] = (*known, frozenset(hooks or ()), bool(graphs), bool(beats))
        found[known[0]] = ShimLog(*fields)
    return ShimLogs(found)


def heartbeat_gaps(logs: Iterable[ShimLog]) -> Mapping[int, int]:
    """For how long (ns) the process of a log had shown no life when the log was taken; ranks are absent where nothing tells it.

    The moment of the copy is the manifest's; without one it is the newest sign of life in any log of the same host, because
    logs of one host are taken together. A host that fell silent at the moment at which all others began to stand still is told
    by the logs of these, which go on.
    """
    known = tuple(log for log in logs if log.beats)
    newest = last_beats(known)
    several = {host for host, count in Counter(log.host for log in known).items() if count > 1 and host is not None}
    gaps = {log.rank: log.copied_ns - log.end_ns for log in known if log.copied_ns is not None and not log.ended}
    gaps |= {
        log.rank: newest[log.rank] - log.end_ns
        for log in known
        if log.copied_ns is None and log.host in several and not log.ended
    }
    return {**gaps, **_silenced(known)}


def _silenced(logs: Collection[ShimLog]) -> Mapping[int, int]:
    """Logs of a host that end in the midst of work, while those of all other hosts go on and show that nothing moved since.

    Logs that were copied one after the other end apart as well; that a job stops just when the first of them is copied would be
    chance, and a clock that is behind shows its own host to stand still too.
    """
    found: dict[int, int] = {}
    places = {log.rank: log.host or str(log.rank) for log in logs}
    for place in sorted(set(places.values())):
        mine = [log for log in logs if places[log.rank] == place]
        others = [log for log in logs if places[log.rank] != place]
        end = max(log.end_ns for log in mine)
        moved = [max((log.active_ns for log in part if log.active_ns is not None), default=0) for part in (mine, others)]
        at_once = all(abs(end - last) <= _AT_ONCE_NS for last in moved)
        told = len(others) >= _LEAST_OTHERS and all(log.copied_ns is None and not log.ended for log in (*mine, *others))
        gap = min((log.end_ns for log in others), default=end) - end
        if told and at_once and gap >= _LEAST_SILENCE_NS:
            found |= dict.fromkeys((log.rank for log in mine), gap)
    return found


def last_beats(logs: Iterable[ShimLog]) -> Mapping[int, int]:
    """Until when (ns) each log tells of its rank: the logs of a host are taken together, at its last sign of life."""
    known = tuple(logs)
    newest: dict[str | None, int] = {}
    for log in known:
        newest[log.host] = max(log.end_ns, newest.get(log.host, 0))
    return {log.rank: newest[log.host] for log in known}


def source_ids(logs: ShimLogs) -> list[int]:
    """Sources of the logs, in order."""
    return sorted(log.source_id for log in logs.values())


@reduction
def chunk_logs(logs: ShimLogs) -> ChunkLogs:
    """Ranks of which NCCL's profiler interface was heard."""
    return ChunkLogs(_hooked(logs, "nccl_profiler"))


@reduction
def work_request_logs(logs: ShimLogs) -> WorkRequestLogs:
    """Ranks of which the verbs were hooked."""
    return WorkRequestLogs(_hooked(logs, "verbs"))


def _hooked(logs: ShimLogs, hook: str) -> frozenset[int]:
    return frozenset(rank for rank, log in logs.items() if hook in log.hooks)
