"""Whether each wait of the job stands still: progress is local, and that one group goes on clears no other.

A wait is a standstill when its ranks have been in it for longer than twice a pause that its communicator has made twice before
(VenusTrace section 4.2: n = 2 times the expected time), and twice what a call seldom made took at the same place before;
when they issued nothing else for that long (stacks beside the record, all at one place, then count on), when a watchdog gave
it up, when two captures found the same ranks in it, when the kernel found a rank that it lacks blocked all the while, or, where
no call dates it, when the logs of the job are silent for as long. It is none while chunks of its ranks move.
It passes when its ranks entered or left communication between captures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import Family
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.progress.liveness import LEAST_SILENCE_NS, SilenceFactor, passing_text, recorders_moved, seconds
from forensics.rules.reductions.progress.log_silence import LogSilence
from forensics.rules.reductions.progress.rhythm import Rhythm
from forensics.rules.reductions.progress.stays import Stays, stayed_before
from forensics.rules.reductions.progress.switches import Pace, WaitPaces
from forensics.rules.reductions.ranks.kernel_lines import BlockedTasks
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.ranks.shim_logs import ShimLogs, last_beats
from forensics.rules.reductions.stacks.samples import Stacks, StacksByRank
from forensics.rules.reductions.waits.graph import Wait, WaitGraph


class Standing(StrEnum):
    """What is known of one wait: it stands, it is as long as usual, its ranks went on between captures, or nothing."""

    STILL = "still"
    USUAL = "usual"
    PASSING = "passing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class WaitState:
    """The decision for one wait, with its reason; `length_ns` is how long it lasted when it was captured, at least."""

    standing: Standing
    reason: str
    length_ns: int | None = None


# A file is as old as its date at most; one that is older than what it holds has a date that says nothing.
_CAPTURED = """
SELECT o.rank, max(s.captured_ns),
       CASE WHEN max(s.modified_ns) >= max(o.enqueued_ns) THEN max(s.modified_ns) END
FROM latest_call o JOIN sources s USING (source_id) GROUP BY o.rank
"""
_SAMPLED = """
SELECT rank, min(time_ns), max(time_ns) FROM stacks
WHERE is_main AND is_child IS DISTINCT FROM true AND rank IS NOT NULL AND time_ns IS NOT NULL GROUP BY rank ORDER BY rank
"""
# Between a dump and the first stack of the same collection.
_BESIDE_NS = 1_000_000_000
# A watchdog of the program that had stacks written into its log says of each rank how long nothing was finished.
_REPORTED = """
SELECT l.rank, max(CAST(regexp_extract(l.subject, '^([0-9]{1,9}) s$', 1) AS BIGINT)) FROM log_events l
WHERE l.kind = 'stall_report' AND l.rank IS NOT NULL AND regexp_matches(l.subject, '^[0-9]{1,9} s$')
    AND EXISTS (SELECT 1 FROM stacks k WHERE k.source_id = l.source_id AND k.rank = l.rank)
GROUP BY l.rank
"""


@dataclass(frozen=True, slots=True)
class _Dates:
    """What the records of calls date, by rank and by communicator (ns).

    `chunks` shows when a chunk last moved, `newest` when that, or a call, was last seen; `reported` are seconds for which a
    watchdog saw nothing finished, of ranks whose stacks it had written; `longer` is for how long stacks beside the record show
    a rank at one place, which is where a job that moves stays step by step as well: it dates no standstill by itself.
    """

    captured: Mapping[int, int]
    modified: Mapping[int, int]
    newest: Mapping[int, int]
    rank_pause: Mapping[int, int]
    communicator_pause: Mapping[str, int]
    moved: Mapping[int, bool]
    chunks: Mapping[int, int]
    reported: Mapping[int, int]
    stays: Stays
    longer: Mapping[int, int]


WaitStates = NewType("WaitStates", tuple[WaitState, ...])
"""The state of each wait of the graph, in its order."""


@reduction
def wait_states(
    calls: Calls,
    graph: WaitGraph,
    ranks: Roster,
    samples: StacksByRank,
    paces: WaitPaces,
    logs: ShimLogs,
    factor: SilenceFactor,
    blocked: BlockedTasks,
    rhythm: Rhythm,
    log: LogSilence,
) -> WaitStates:
    """Judge each wait; `factor` is how many usual pauses one must last to be a standstill."""
    dates = _dates(calls.connection, logs, rhythm, samples) if graph.waits else None
    moved = _not_there_yet(graph.waits, dates) if dates else {}
    found = [
        _state(wait, dates, ranks, samples, paces, factor, blocked, moved.get(place))
        for place, wait in enumerate(graph.waits)
        if dates
    ]
    return WaitStates(tuple(_as_long_as(log, state) if log else state for state in found))


def _as_long_as(log: LogSilence, state: WaitState) -> WaitState:
    """What no call dates stands for as long as the logs of the job are silent, unless it is known to have passed."""
    if state.length_ns is not None or state.standing not in (Standing.STILL, Standing.UNKNOWN):
        return state
    reason = state.reason if state.standing is Standing.STILL else log.reason
    return WaitState(Standing.STILL, reason, log.silence_ns)


def _longer(connection: DuckDBPyConnection, captured: Mapping[int, int], samples: Mapping[int, Stacks]) -> dict[int, int]:
    """For how long (ns) ranks were seen at one place after their records, by stacks that begin beside these."""
    stayed = {rank for rank, found in samples.items() if rank in captured and len(found.main) > 1 and not found.moved}
    sampled = rows_of(connection, "stacks", _SAMPLED) if stayed else ()
    beside = {rank: last for rank, first, last in sampled if rank in stayed and first <= captured[rank] + _BESIDE_NS}
    return {rank: max(last - captured[rank], 0) for rank, last in beside.items()}


def _dates(connection: DuckDBPyConnection, logs: ShimLogs, rhythm: Rhythm, samples: Mapping[int, Stacks]) -> _Dates:
    captured = rows_of(connection, "operations", _CAPTURED)
    # Replays of a captured graph make no call, and a process that has left in order waits for nobody.
    beating = last_beats(log for log in logs.values() if log.beats and not (log.ended or log.graphs))
    chunks = {rank: logs[rank].chunk_ns or 0 for rank in beating}
    known = {**beating, **{rank: when for rank, when, _ in captured if when is not None}}
    return _Dates(
        known,
        {rank: latest for rank, _, latest in captured if latest is not None},
        {rank: max(newest, chunks.get(rank, 0)) for rank, newest in rhythm.newest.items()},
        rhythm.pauses,
        rhythm.pauses_within,
        recorders_moved(connection),
        chunks,
        dict(rows_of(connection, "log_events", _REPORTED, kinds=("stall_report",))),
        rhythm.stays,
        _longer(connection, known, samples),
    )


def _state(
    wait: Wait,
    dates: _Dates,
    ranks: Roster,
    samples: Mapping[int, Stacks],
    paces: WaitPaces,
    factor: float,
    blocked: BlockedTasks,
    moved: WaitState | None,
) -> WaitState:
    timed_out = [rank for rank in wait.waiting if rank in ranks.ranks and ranks.ranks[rank].timed_out]
    dated = moved or _dated(wait, dates, factor)
    if dated is not None and dated.standing is Standing.STILL:
        return dated
    if wait.overdue:
        return WaitState(Standing.STILL, "it was reported because a time limit had passed")
    if timed_out:
        return WaitState(Standing.STILL, f"the watchdog of rank {timed_out[0]} gave it up")
    if len(wait.waiting) > 1 and wait.waiting.keys() <= dates.reported.keys():
        least = min(dates.reported[rank] for rank in wait.waiting)
        return WaitState(Standing.STILL, f"watchdogs of all who wait saw nothing finished for {least} s", least * 10**9)
    if held := [rank for rank in wait.missing if rank in blocked]:
        least = blocked[held[0]].seconds
        return WaitState(Standing.STILL, f"the kernel found rank {held[0]} blocked for more than {least} s", least * 10**9)
    return dated or _between_dumps(wait, dates) or _young(wait, dates, factor) or _between_samples(wait, ranks, samples, paces)


def _dated(wait: Wait, dates: _Dates, factor: float) -> WaitState | None:
    """Judge by the time since its ranks issued it, and since they issued anything; None where nothing dates it."""
    known = [r for r, call in wait.waiting.items() if call and call.enqueued_ns is not None and r in dates.captured]
    if not known:
        return None
    issued = {rank: call.enqueued_ns for rank, call in wait.waiting.items() if call and call.enqueued_ns is not None}
    length = max(dates.captured[rank] - _begun(wait, rank, issued[rank], dates) for rank in known)
    silence = min(dates.captured[rank] - dates.newest[rank] for rank in known)
    own = dates.communicator_pause.get(wait.communicator)
    usual = max((pause for rank in known if (pause := dates.rank_pause.get(rank)) is not None), default=None)
    before = stayed_before(wait, dates.stays)
    for lasted, pause in ((length, own), (silence, usual)):
        if pause is not None and lasted > max(factor * pause, factor * before, LEAST_SILENCE_NS):
            text = f"it lasted {seconds(lasted)} when it was captured; pauses of up to {seconds(pause)} occurred twice before"
            return WaitState(Standing.STILL, text, lasted + min(dates.longer.get(rank, 0) for rank in known))
    pause = own if own is not None else usual
    if pause is None:
        short = length < LEAST_SILENCE_NS
        return WaitState(Standing.USUAL, f"it lasted {seconds(length)} only", length) if short else None
    usually = f"the same call took {seconds(before)}" if before > pause else f"pauses of {seconds(pause)} occurred twice"
    return WaitState(Standing.USUAL, f"it lasted {seconds(length)} when it was captured, and {usually} before", length)


def _not_there_yet(waits: Sequence[Wait], dates: _Dates) -> Mapping[int, WaitState]:
    """Waits, by their place, that devices which moved just now have before them: hosts issue calls long before that.

    So have those that are held up in such a call, of all that they issued after it.
    """
    moved = {place: state for place, wait in enumerate(waits) if (state := _moved(wait, dates)) is not None}
    least = min((state.length_ns or 0 for state in moved.values()), default=0)
    first: dict[int, int] = {}
    for place in moved:
        for rank, call in waits[place].waiting.items():
            if call is not None:
                first[rank] = min(call.order, first.get(rank, call.order))
    behind = WaitState(Standing.USUAL, f"its ranks are held up in calls whose chunks moved {seconds(least)} before", least)
    later = {
        place: behind
        for place, wait in enumerate(waits)
        if any(call is not None and rank in first and call.order > first[rank] for rank, call in wait.waiting.items())
    }
    return {**later, **moved}


def _moved(wait: Wait, dates: _Dates) -> WaitState | None:
    """Whether chunks of a rank that waits moved after it had issued the call, up to the capture."""
    issued = {rank: call.enqueued_ns for rank, call in wait.waiting.items() if call and call.enqueued_ns is not None}
    after = [rank for rank in issued if rank in dates.captured and dates.chunks.get(rank, 0) > issued[rank]]
    least = min((max(dates.captured[rank] - dates.chunks[rank], 0) for rank in after), default=LEAST_SILENCE_NS)
    if least >= LEAST_SILENCE_NS:
        return None
    return WaitState(Standing.USUAL, f"chunks of its ranks moved {seconds(least)} before it was captured", least)


def _begun(wait: Wait, rank: int, issued: int, dates: _Dates) -> int:
    """Since when nothing of the call happened: as long as chunks move, its rank does not stand still in it."""
    return max(issued, dates.chunks.get(rank, 0)) if wait.families.get(rank) is Family.SHIM else issued


def _young(wait: Wait, dates: _Dates, factor: float) -> WaitState | None:
    """Judge by the dates of files that nothing else dates: they bound the length from above, and prove no standstill."""
    issued = {rank: call.enqueued_ns for rank, call in wait.waiting.items() if call and call.enqueued_ns is not None}
    if not issued or not issued.keys() <= dates.modified.keys():
        return None
    most = max(dates.modified[rank] - since for rank, since in issued.items())
    pauses = [dates.communicator_pause.get(wait.communicator), *(dates.rank_pause.get(rank) for rank in issued)]
    usual = max((pause for pause in pauses if pause is not None), default=0)
    if most > max(factor * usual, LEAST_SILENCE_NS):
        return None
    return WaitState(Standing.USUAL, f"it lasted {seconds(most)} at most when its files were written", most)


def _between_dumps(wait: Wait, dates: _Dates) -> WaitState | None:
    twice = [rank for rank in wait.waiting if rank in dates.moved]
    still = [rank for rank in twice if not dates.moved[rank]]
    if still:
        return WaitState(Standing.STILL, f"{len(still)} of {len(twice)} recorders of it did not advance between two dumps")
    if twice:
        return WaitState(Standing.PASSING, f"{len(twice)} recorders of it advanced between two dumps")
    return None


def _between_samples(wait: Wait, ranks: Roster, samples: Mapping[int, Stacks], paces: WaitPaces) -> WaitState:
    """Judge by the stacks of the ranks that wait: where they stayed, nothing else can have happened to them."""
    # Stacks tell no communicator: whoever came out of a call may have come out of this one.
    taking_part = wait.waiting if wait.communicator else samples
    several = {rank: samples[rank] for rank in taking_part if rank in samples and len(samples[rank].main) > 1}
    passing = [rank for rank, found in several.items() if found.moved and found.communicated]
    if passing:
        return WaitState(Standing.PASSING, passing_text(len(passing)))
    woken = next((paces[rank] for rank in several if rank in paces and paces[rank].pace is Pace.MOVING), None)
    if woken is not None:
        return WaitState(Standing.PASSING, f"rank {woken.rank} was woken while it waited: {woken.reason}")
    still = list(_stayed(several, ranks, paces))
    if still:
        return WaitState(
            Standing.STILL, f"{len(still)} of {len(several)} ranks stayed at the same place over all stack samples"
        )
    return WaitState(Standing.UNKNOWN, "its ranks were captured once, and nothing dates it")


def _stayed(several: Mapping[int, Stacks], ranks: Roster, paces: WaitPaces) -> Iterator[int]:
    for rank, found in several.items():
        asleep = paces[rank].pace is Pace.STILL if rank in paces else not ranks.rank(rank).switches
        if not found.moved and asleep and (found.communicating or found.in_store or found.in_file_lock):
            yield rank
