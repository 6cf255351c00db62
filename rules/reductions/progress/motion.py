"""Whether the job moves, by every source there is, the first that tells."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.epochs.standstill import NicSilence
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.frontier.verdicts import FrontierWindow
from forensics.rules.reductions.hardware.state import ports_read_twice
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.progress.at_work import LEAST_WRITTEN
from forensics.rules.reductions.progress.liveness import LEAST_SILENCE_NS, Liveness, Motion, SilenceFactor, liveness, seconds
from forensics.rules.reductions.progress.log_silence import LogSilence
from forensics.rules.reductions.progress.rhythm import Rhythm
from forensics.rules.reductions.progress.shim_logs import logged_motion
from forensics.rules.reductions.progress.speed import Speed
from forensics.rules.reductions.progress.stays import stayed_before
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.ranks.shim_logs import ShimLog, ShimLogs, last_beats
from forensics.rules.reductions.stacks.samples import StacksByRank
from forensics.rules.reductions.waits.graph import WaitGraph

LEAST_STEPS = 3
_LEAST_RANKS = 2
# What looks for hangs: where there is any of it, it decides, unless the record goes on to the moment at which it was fetched.
_CAPTURES = "SELECT count(*) FROM sources WHERE kind IN ('flight_recorder', 'python_stacks', 'shim_log', 'nccl_ras')"
_SILENCE = """
WITH newest AS (
    SELECT source_id, rank, max(end_ns) AS newest_ns FROM steps GROUP BY source_id, rank
), by_rank AS (
    SELECT n.rank, max(s.captured_ns) AS captured_ns, max(n.newest_ns) AS newest_ns
    FROM newest n JOIN sources s USING (source_id) GROUP BY n.rank
)
SELECT max(captured_ns) - max(newest_ns), max(captured_ns - newest_ns), bool_and(captured_ns IS NOT NULL) FROM by_rank
"""
LEAST_PACKETS_PER_S = 10_000.0
"""Keep-alives, monitoring and a hung job's retries stay far below; training over a NIC of 100 Gb/s sends a million."""


@reduction
def motion(
    calls: Calls,
    ranks: Roster,
    samples: StacksByRank,
    shim: ShimLogs,
    windows: FrontierWindows,
    factor: SilenceFactor,
    nics: NicSilence,
    log: LogSilence,
    graph: WaitGraph,
    rhythm: Rhythm,
    pace: Speed,
) -> Liveness:
    """Logs of calls where the calls are theirs, else dumps and stacks; then recorded steps, NICs, logs, and other sources."""
    silent = [rank for rank, facts in ranks.ranks.items() if facts.heartbeat_gap_ns]
    found = logged_motion(shim.values(), factor, silent) if calls.from_shim else None
    before = max((stayed_before(wait, rhythm.stays) for wait in graph.waits), default=0)
    found = found or moved_by_devices(
        liveness(calls.connection, ranks, samples, rhythm, factor, before, graph.waits), shim, silent
    )
    found = moving_by_steps(calls.connection, found, windows, factor)
    if found.motion is Motion.UNSEEN and nics:
        found = replace(found, motion=Motion.STALLED, reason=nics.reason, source=nics.source)
    elif found.motion is Motion.UNSEEN and log:
        found = replace(found, motion=Motion.STALLED, reason=log.reason, source=log.source)
    found = with_progress(calls.connection, found, shim, ranks, factor)
    recent = None if found.shown else within_a_step(calls.connection, found, ranks, rhythm, pace.step_ns)
    return found if recent is None else replace(found, progress=recent)


def moved_by_devices(motion: Liveness, logs: Mapping[int, ShimLog], silent: Collection[int]) -> Liveness:
    """Call no job stalled for its calls alone whose devices go on: hosts make the calls of a step long before these come there.

    When a rank stops, the others move no chunk any more once they stand in what they share with it.
    """
    if motion.motion is not Motion.STALLED or motion.silence_ns is None:
        return motion
    known = {rank: log for rank, log in logs.items() if log.chunk_ns is not None and not log.ended and rank not in silent}
    until = last_beats(known.values())
    since = {rank: until[rank] - (log.chunk_ns or 0) for rank, log in known.items()}
    moved = sorted(rank for rank, ns in since.items() if ns < min(LEAST_SILENCE_NS, motion.silence_ns / 2))
    if len(moved) < _LEAST_RANKS:
        return motion
    text = f"{motion.reason}; chunks of {len(moved)} ranks moved {seconds(min(since.values()))} before the last heartbeat"
    return replace(motion, motion=Motion.TOO_EARLY, reason=text)


def moving_by_steps(
    connection: DuckDBPyConnection, motion: Liveness, windows: Sequence[FrontierWindow], silence_factor: float
) -> Liveness:
    """Call a job moving whose every rank recorded steps, unless the record had been silent for long when it was collected.

    Beside stacks or dumps that only did not see it move, the record of every rank must go on until it was fetched.
    """
    if motion.motion is not Motion.UNSEEN or not windows:
        return motion
    ((has_captures,),) = connection.execute(_CAPTURES).fetchall()
    ((silence, of_any_rank, is_dated),) = connection.execute(_SILENCE).fetchall()
    longest = max(float(window.matrix.walls.max(initial=0.0)) for window in windows)
    limit = max(silence_factor * longest, LEAST_SILENCE_NS)
    steps = sum(len(window.matrix.steps) for window in windows)
    is_whole = is_dated and not any(window.matrix.missing for window in windows)
    is_up_to_date = is_whole and of_any_rank is not None and of_any_rank <= limit
    if (has_captures and not is_up_to_date) or (silence is not None and silence > limit) or steps < LEAST_STEPS:
        return motion
    ranks = sorted({rank for window in windows for rank in window.matrix.ranks})
    last = int(np.max([window.matrix.steps[-1] for window in windows]))
    reason = f"steps up to {last} were recorded on {len(ranks)} {'rank' if len(ranks) == 1 else 'ranks'}"
    return replace(motion, motion=Motion.MOVING, reason=reason, advanced=tuple(ranks))


# Of a file that was cut the newest calls are lost.
_CAPTURED = """
SELECT source_id, rank, captured_ns FROM sources
WHERE rank IS NOT NULL AND captured_ns IS NOT NULL AND status <> 'partial'
"""


def within_a_step(
    connection: DuckDBPyConnection, motion: Liveness, ranks: Roster, rhythm: Rhythm, step_ns: float | None
) -> str | None:
    """Calls were made up to the capture: the newest one lies no further back than a usual step, and no rank is long behind.

    When a rank stops, also one of which there is no dump, the others come to stand within a step or two.
    """
    if motion.motion is not Motion.TOO_EARLY or motion.silence_ns is None or step_ns is None:
        return None
    limit = min(step_ns, LEAST_SILENCE_NS)
    silent: dict[int, int] = {}
    for source, rank, captured in rows_of(connection, "sources", _CAPTURED):
        if source in rhythm.newest_of_sources:
            silence = captured - rhythm.newest_of_sources[source]
            silent[rank] = min(silence, silent.get(rank, silence))
    is_known = 2 * len(silent) > len(ranks.ranks)
    if not is_known or motion.silence_ns > limit or max(silent.values()) > max(motion.pause_ns or 0, limit):
        return None
    return f"calls up to {seconds(motion.silence_ns)} before the capture, in steps of {seconds(round(step_ns))}"


def with_progress(
    connection: DuckDBPyConnection, motion: Liveness, logs: Mapping[int, ShimLog], ranks: Roster, factor: float
) -> Liveness:
    """Add to a decision that is open (`TOO_EARLY`, `UNSEEN`) what shows that the job goes on, if anything does.

    It changes nothing of what may be accused: a job of which somebody is accused is not healthy, whatever else goes on.
    """
    if motion.motion not in (Motion.TOO_EARLY, Motion.UNSEEN):
        return motion
    found = _calls(logs, ranks, factor) or _written(ranks)
    # Traffic is not signed: it only goes with a recorder whose newest operation is as recent as its rhythm asks.
    if found is None and motion.motion is Motion.TOO_EARLY and motion.silence_ns is not None and motion.pause_ns is not None:
        found = _traffic(connection, ranks)
    return motion if found is None else replace(motion, progress=found)


def _calls(logs: Mapping[int, ShimLog], ranks: Roster, factor: float) -> str | None:
    """Every rank made calls up to the end of its log, and its process beat until the log was taken."""
    whole = bool(logs) and logs.keys() >= ranks.ranks.keys() and not any(log.ended for log in logs.values())
    if not whole or any(facts.heartbeat_gap_ns for facts in ranks.ranks.values()):
        return None
    found = logged_motion(logs.values(), factor)
    return found.reason if found is not None and found.motion is Motion.MOVING else None


def _written(ranks: Roster) -> str | None:
    """Every rank wrote to sockets or files: who waits in a call that stands writes nothing.

    Between two samples a step may be longer than what lies between them, and then none of it is seen.
    """
    least = min((facts.mean_written_bytes or 0 for facts in ranks.ranks.values()), default=0)
    if len(ranks.ranks) < _LEAST_RANKS or least < LEAST_WRITTEN:
        return None
    return f"each of {len(ranks.ranks)} ranks wrote {least / 1e6:.1f} MB or more from sample to sample, on average"


def _traffic(connection: DuckDBPyConnection, ranks: Roster) -> str | None:
    """The NICs of every host of a job on several hosts carried traffic between two reads of their counters."""
    hosts = {facts.host for facts in ranks.ranks.values()}
    rates = dict.fromkeys(hosts, 0.0)
    for port in ports_read_twice(connection) if len(hosts) > 1 and None not in hosts else ():
        rates[port.host] = max(rates.get(port.host, 0.0), port.packets / port.seconds)
    least = min((rates[host] for host in hosts), default=0.0)
    if least < LEAST_PACKETS_PER_S:
        return None
    return f"NICs of all {len(hosts)} hosts carried at least {least:,.0f} packets a second between two reads of their counters"
