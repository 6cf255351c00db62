"""A small trace of the time around the stall for Perfetto: JSON of the trace event format, a process a rank.

Times are microseconds after `otherData.begin_ns`, aligned where offsets between hosts are known; each process says whether its
clock is. Tracks of a rank: `verdict` (suspect or waits), a track for each communicator, `steps`, `stages`, threads and
streams of traces. Arrows lead from the ranks that are waited for to those that wait. A call is drawn from when it was first in
its communicator (enqueued, and the call before it done) to its end as recorded; the recorder finds ends in rounds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from duckdb import DuckDBPyConnection

import forensics
from forensics.model import Anomaly, Suspect, Verdict
from forensics.report import json, ranks, suspects
from forensics.report.plain import brief
from forensics.report.trace_window import Alignment, Window
from forensics.sharing.statements import without_secrets

MOST_EVENTS = 50_000
_NAME = 120
_MOST_ARROWS = 512
_SOURCES_OF_ARROWS = 4
_VERDICT, _STEPS, _STAGES = "verdict", "steps", "stages"

Event = dict[str, Any]

_CALLS = """
SELECT rank, host, communicator, kind, sequence, state, enqueued_ns AS begin, coalesce(device_end_ns, proxy_end_ns) AS ended
FROM latest_call WHERE list_contains($ranks, rank) AND enqueued_ns <= $high AND (state <> 'done' OR enqueued_ns >= $low
    OR coalesce(device_end_ns, proxy_end_ns) >= $low)
QUALIFY row_number() OVER (PARTITION BY rank ORDER BY state = 'done', enqueued_ns DESC) <= $most
ORDER BY rank, communicator, enqueued_ns, sequence
"""
_STEP_ROWS = """
SELECT t.rank, s.host, 'step ' || t.step, 'steps', t.begin_ns, coalesce(t.wall_ns, t.end_ns - t.begin_ns)
FROM steps t JOIN sources s USING (source_id)
WHERE list_contains($ranks, t.rank) AND t.begin_ns <= $high AND t.begin_ns + coalesce(t.wall_ns, t.end_ns - t.begin_ns) >= $low
QUALIFY row_number() OVER (PARTITION BY t.rank ORDER BY t.begin_ns DESC) <= $most ORDER BY 1, 5, 3
"""
_STAGE_ROWS = """
SELECT p.rank, s.host, coalesce(p.substage, p.stage), 'stages', p.begin_ns, p.duration_ns
FROM stage_spans p JOIN sources s USING (source_id)
WHERE list_contains($ranks, p.rank) AND NOT coalesce(p.side_channel, false) AND p.begin_ns <= $high
    AND p.begin_ns + p.duration_ns >= $low
QUALIFY row_number() OVER (PARTITION BY p.rank ORDER BY p.begin_ns DESC) <= $most ORDER BY 1, 5, 3
"""
_SPAN_ROWS = """
SELECT p.rank, s.host, p.name, coalesce(p.category || ' ', '') || coalesce(p.track, ''), p.begin_ns, p.end_ns - p.begin_ns
FROM spans p JOIN sources s USING (source_id)
WHERE list_contains($ranks, p.rank) AND p.begin_ns <= $high AND p.end_ns >= $low AND p.end_ns >= p.begin_ns
QUALIFY row_number() OVER (PARTITION BY p.rank ORDER BY p.end_ns - p.begin_ns DESC, p.begin_ns) <= $most
ORDER BY 1, 4, 5, 6 DESC, 3
"""


@dataclass(frozen=True, slots=True)
class _Slice:
    """One bar of a track; `begin` and `length` in ns, `length` None for a moment."""

    rank: int
    host: str | None
    name: str
    track: str
    begin: int
    length: int | None
    args: tuple[tuple[str, Any], ...] = ()


def render(
    connection: DuckDBPyConnection,
    verdict: Verdict,
    shown: Sequence[int],
    span: Window,
    clocks: Alignment,
    most_events: int = MOST_EVENTS,
) -> bytes:
    """The trace as UTF-8 JSON; at most about `most_events` events, the newest calls and the longest spans kept."""
    slices = without_secrets((*_judged(verdict, shown, span), *_recorded(connection, shown, span, most_events)))
    hosts = _hosts(connection, shown) | {each.rank: each.host for each in slices if each.host is not None}
    job = max((*shown, (verdict.world_size or 0) - 1), default=0) + 1
    tracks = _tracks(slices)
    events = [
        *_names(verdict, shown, hosts, clocks, tracks),
        *(_event(each, tracks, span, clocks, hosts) for each in slices),
        *_arrows(slices, verdict, tracks, span, clocks, hosts),
        *_job_events(verdict, job, span, clocks),
    ]
    return json.encoded({"displayTimeUnit": "ms", "otherData": _about(verdict, span), "traceEvents": events}, option=0)


def _about(verdict: Verdict, span: Window) -> dict[str, Any]:
    return {
        "tool": f"forensics {forensics.__version__}",
        "bundle_sha256": verdict.bundle_sha256,
        "summary": verdict.summary,
        "begin_ns": span.begin_ns,
        "end_ns": span.end_ns,
    }


def _recorded(connection: DuckDBPyConnection, shown: Sequence[int], span: Window, most: int) -> Iterator[_Slice]:
    """Bars of what was recorded, a share of the events for each source and rank."""
    share = max(most // max(len(shown), 1) // 4, 1)
    asked = {"ranks": list(shown), "low": span.begin_ns, "high": span.end_ns, "most": share}
    yield from _calls(connection.execute(_CALLS, asked).fetchall(), span)
    for query in (_STEP_ROWS, _STAGE_ROWS, _SPAN_ROWS):
        yield from (_Slice(*row) for row in connection.execute(query, asked).fetchall() if row[5] is not None)


def _calls(rows: Sequence[tuple[Any, ...]], span: Window) -> Iterator[_Slice]:
    """Calls of each communicator one after the other; of those that do not end, the first is drawn to the end of the window."""
    free: dict[tuple[int, str], int] = defaultdict(int)
    for rank, host, communicator, kind, sequence, state, begin, ended in rows:
        track = f"calls of {communicator or 'an unknown communicator'}"
        start = max(begin, free[rank, track])
        args = (("communicator", communicator), ("sequence", sequence), ("state", state), ("enqueued_ns", begin))
        length = None
        if state != "done" and free[rank, track] < span.end_ns:
            length, free[rank, track] = max(span.end_ns - start, 0), span.end_ns
        elif ended is not None and state == "done":
            length = max(ended - start, 0)
            free[rank, track] = start + length
        name = kind if sequence is None else f"{kind} {sequence}"
        yield _Slice(rank, host, name, track, start, length, args)


def _judged(verdict: Verdict, shown: Sequence[int], span: Window) -> Iterator[_Slice]:
    """What the verdict says of each rank, from the begin of the stall on; nothing where that is not known.

    Beside suspects that are only slow nobody waits since then: their waits are those of the moment of the capture.
    """
    if span.since_ns is None:
        return
    named = {rank: suspect for suspect in reversed(verdict.suspects) for rank in suspect.ranks}
    length = max(span.end_ns - span.since_ns, 0)
    for rank in shown:
        if rank in named:
            args = (("cause", named[rank].cause), ("confidence", named[rank].confidence))
            taken = _length(named[rank], length)
            yield _Slice(rank, None, f"suspect: {suspects.words(named[rank].cause)}", _VERDICT, span.since_ns, taken, args)
    there = set(shown) - set(named)
    stopped = not named or any(suspect.anomaly is Anomaly.FAIL_STOP for suspect in named.values())
    for row in verdict.victims if stopped else ():
        for rank in sorted(there & set(row.ranks)):
            yield _Slice(rank, None, f"waits for {ranks.phrase(row.waits_for, most=4)}", _VERDICT, span.since_ns, length)


def _length(suspect: Suspect, rest: int) -> int:
    """A rank that stopped is a suspect for good; a slow one for as long as it cost."""
    cost = suspect.impact.recoverable_ns if suspect.impact else None
    return rest if suspect.anomaly is Anomaly.FAIL_STOP or cost is None else min(cost, rest)


def _hosts(connection: DuckDBPyConnection, shown: Sequence[int]) -> dict[int, str | None]:
    query = "SELECT rank, min(host) FROM ranks WHERE list_contains($ranks, rank) AND host IS NOT NULL GROUP BY rank"
    return dict(connection.execute(query, {"ranks": list(shown)}).fetchall())


def _tracks(slices: Sequence[_Slice]) -> dict[tuple[int, str], int]:
    """Number of each track within its rank: verdict, steps, stages, then in the order of names."""
    first = {_VERDICT: 0, _STEPS: 1, _STAGES: 2}
    numbers: dict[tuple[int, str], int] = {}
    count: dict[int, int] = defaultdict(lambda: len(first))
    for rank, track in sorted({(each.rank, each.track) for each in slices}):
        numbers[rank, track] = first[track] if track in first else count[rank]
        count[rank] += track not in first
    return numbers


def _names(
    verdict: Verdict,
    shown: Sequence[int],
    hosts: dict[int, str | None],
    clocks: Alignment,
    tracks: dict[tuple[int, str], int],
) -> Iterator[Event]:
    """Names and order of processes and tracks: suspects at the top."""
    accused = {rank for suspect in verdict.suspects for rank in suspect.ranks}
    for rank in shown:
        host = hosts.get(rank)
        name = f"rank {rank}{' (suspect)' if rank in accused else ''}" + (f" on {host}" if host else "")
        yield _meta("process_name", rank, 0, name=brief(name, _NAME))
        yield _meta("process_labels", rank, 0, labels=brief(clocks.said(host), _NAME))
        yield _meta("process_sort_index", rank, 0, sort_index=rank if rank in accused else rank + (1 << 20))
    for (rank, track), number in tracks.items():
        yield _meta("thread_name", rank, number, name=brief(track, _NAME))
        yield _meta("thread_sort_index", rank, number, sort_index=number)


def _meta(kind: str, pid: int, tid: int, /, **args: Any) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args}


def _event(
    each: _Slice, tracks: dict[tuple[int, str], int], span: Window, clocks: Alignment, hosts: dict[int, str | None]
) -> Event:
    """The bar or moment; what the verdict says is dated on the clock of the verdict, which is not moved."""
    moved = 0 if each.track == _VERDICT else clocks.of(each.host or hosts.get(each.rank))
    begin = each.begin - moved - span.begin_ns
    place = {"pid": each.rank, "tid": tracks[each.rank, each.track], "ts": _micros(max(begin, 0))}
    event: Event = {"name": brief(each.name, _NAME), "cat": each.track.partition(" ")[0] or "spans", **place}
    if each.args:
        event["args"] = {key: brief(str(value), _NAME) for key, value in each.args if value is not None}
    if each.length is None:
        return event | {"ph": "i", "s": "t"}
    return event | {"ph": "X", "dur": _micros(max(each.length + min(begin, 0), 0))}


def _micros(time_ns: int) -> float:
    return round(time_ns / 1000, 3)


def _arrows(
    slices: Sequence[_Slice],
    verdict: Verdict,
    tracks: dict[tuple[int, str], int],
    span: Window,
    clocks: Alignment,
    hosts: dict[int, str | None],
) -> Iterator[Event]:
    """From each rank that is waited for to each that waits for it, between their bars of the verdict."""
    judged = {each.rank: each for each in slices if each.track == _VERDICT}
    pairs = (
        (whom, rank)
        for row in verdict.victims
        for whom in [rank for rank in row.waits_for if rank in judged][:_SOURCES_OF_ARROWS]
        for rank in row.ranks
        if rank in judged and rank != whom
    )
    for number, (whom, rank) in zip(range(1, _MOST_ARROWS + 1), pairs, strict=False):
        for phase, each in (("s", judged[whom]), ("f", judged[rank])):
            event = _event(each, tracks, span, clocks, hosts)
            place = {key: event[key] for key in ("pid", "tid", "ts")}
            yield {"ph": phase, "id": number, "name": "holds up", "cat": _VERDICT, "bp": "e", **place}


def _job_events(verdict: Verdict, job: int, span: Window, clocks: Alignment) -> Iterator[Event]:
    """Dated events of logs and hosts, in a process of their own."""
    dated = [(entry, entry.time_ns - clocks.of(entry.host)) for entry in verdict.timeline]
    within = [(entry, time) for entry, time in dated if span.begin_ns <= time <= span.end_ns]
    if within:
        yield _meta("process_name", job, 0, name="events of the job")
        yield _meta("process_sort_index", job, 0, sort_index=-1)
    for entry, time in within:
        args = {"host": entry.host, "source": entry.source, "text": brief(entry.text, 1000)}
        event = {"ph": "i", "s": "p", "pid": job, "tid": 0, "ts": _micros(time - span.begin_ns), "cat": "events"}
        yield event | {"name": brief(entry.text, _NAME), "args": {key: value for key, value in args.items() if value}}
