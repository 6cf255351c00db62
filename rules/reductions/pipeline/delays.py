"""Who held up a long step: the rank that the others waited for and that waited for nobody before, or a transfer.

A delay travels: who waits for a late rank comes late itself to the next call. So the first thing that a rank does in a long
step decides: it waits longer than usual (then it is a victim), or others wait for it (then it is a root). Waiting is shown by
the time inside a call on the rank's own clock: the last member to come is in it for the shortest time, so that no two clocks
are compared. Where all members are in a call for longer, and had come in time, it is the transfer, unless that only waited for
its turn behind another one of the same rank. Without such times the ends of calls tell (watchdogs see them up to a round late):
the first call of all of its members that ends late is that of the root's group.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import fsum

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.calls.semantics import SEPARATE, stem_of
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.pipeline.absent_roots import absent_root
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.delay import Delay, Delays
from forensics.rules.reductions.pipeline.late_alike import settled, without_followers
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.pipeline.meetings import LEAST_MEMBERS, Call, all_there, first_of, met, workers
from forensics.rules.reductions.pipeline.queued_messages import waits_its_turn
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.steps.records import Ints, Recorded
from forensics.rules.reductions.steps.times import Floats, Steps, StepTimes, step_times
from forensics.rules.reductions.steps.traced import TracedRecords

# Of the time that the step was longer: who waits for as much waits for the delay. Of the calls of a step: so many may
# be undated.
_WAITS, _UNKNOWN_CALLS = 0.5, 0.25
_PASSED_ON = 0.5
# Hosts whose middle one shows how late all are to a step.
_MOST_OTHERS = 8
_LEAST_STEPS = 2
# Gloo counts the calls that it does not record.
_MESSAGES = """
SELECT 1 FROM operations WHERE coalesce(is_p2p, false) OR kind IN ('send', 'recv')
OR (backend = 'gloo' AND (op_id IS NULL OR op_id > sequence)) LIMIT 1
"""
# A watchdog sees an end up to a round late (100 ms, torch 2.9), and the begin of the step as late.
_SEEN_NS = 300e6


@reduction
def steps(records: Recorded, liveness: Liveness, traces: TracedRecords) -> StepTimes:
    """The steps of a job that is not known to stand still, by its recorders or by the traces, whichever time more ranks."""
    if liveness.motion is Motion.STALLED:
        return step_times({})
    times = step_times(records.of())
    if len(_timed(times)) >= len(traces):
        return times
    traced = step_times(traces)
    return traced if len(_timed(traced)) > len(_timed(times)) else times


@reduction
def delays(connection: DuckDBPyConnection, times: StepTimes, layout: Layout) -> Delays:
    """What held up the long steps."""
    long, in_step = times.long(), layout.along(Axis.TENSOR)
    alike = [layout.members[label] for label in in_step]
    each = {number: settled(tuple(_of_step(times, number, excess, in_step)), alike) for number, excess in long}
    each |= {number: _of_absent(times, number, excess, layout) for number, excess in long if not each[number]}
    found = without_followers(each, alike)
    return Delays(
        found=tuple(delay for each in found.values() for delay in each),
        steps=len(times.number) if len(times.number) > 1 else 0,
        usual=len(times.usual),
        typical_ns=times.typical_ns,
        unexplained=sum(not each for each in found.values()),
        ranks=frozenset(times.ranks),
        timed=_timed(times),
        unexplained_ns=tuple(excess for number, excess in long if not found[number]),
        between_ns=times.between(long),
        may_have_messages=bool(long) and bool(connection.execute(_MESSAGES).fetchall()),
    )


def _timed(times: StepTimes) -> frozenset[int]:
    """Ranks that tell the time inside all of their calls; the records of others may begin later, or end before."""
    ends = [(int(steps.number[0]), int(steps.number[-1])) for steps in times.ranks.values() if len(steps.number)]
    first, last = max((begin for begin, _ in ends), default=0), min((end for _, end in ends), default=0)
    return frozenset(rank for rank, steps in times.ranks.items() if not np.isnan(_between(steps, first, last)).any())


def _between(steps: Steps, first: int, last: int) -> Floats:
    """Times inside calls of the steps between those two, that all ranks show; of all but the outer ones where they are few."""
    inside = steps.of(steps.record.duration_ns)
    shown = (steps.number > first) & (steps.number < last)
    return inside[shown] if 2 * shown.sum() > len(inside) else inside[1:-1] if len(inside) > _LEAST_STEPS else inside


def _of_step(times: StepTimes, number: int, excess: float, in_step: Collection[str]) -> Iterator[Delay]:
    """`in_step` are communicators of ranks that work on the same data in step."""
    inside = _excesses(times, number, "duration_ns")
    if 2 * len(inside) >= len(times.ranks):
        roots = tuple(_by_waits(times, number, excess, inside, in_step))
        late = {rank for delay in roots for rank in delay.ranks}
        before = _of_step_before(times, number, excess, inside, in_step) if all(each.before_step for each in roots) else ()
        yield from [delay for delay in before if late.issubset(delay.ranks)] or roots
    elif excess >= _SEEN_NS:
        yield from _by_ends(times, number, excess, _excesses(times, number, "end_ns"))


def _of_absent(times: StepTimes, number: int, excess: float, layout: Layout) -> tuple[Delay, ...]:
    """A rank that left no record, where times inside calls show that the others waited for it."""
    inside = _excesses(times, number, "duration_ns")
    found = absent_root(times, excess, inside, layout.members, layout.along(Axis.TENSOR))
    if found is None:
        return ()
    rank, call = found
    return (replace(_delay(times, number, excess, (call,), call.excess), ranks=(rank,), shown_by=call.rank),)


def _excesses(times: StepTimes, number: int, column: str) -> dict[int, tuple[Ints, Floats]]:
    """The excess of each rank for which it is known."""
    return {rank: found for rank, steps in times.ranks.items() if (found := _excess(times, steps, number, column))}


def _excess(times: StepTimes, steps: Steps, number: int, column: str, *, free: bool = False) -> tuple[Ints, Floats] | None:
    """Places of the calls of a step in the order of the host, and by how many ns each was above its usual; None if not known.

    Moments count from the last call before the step: a host that pauses between two steps is late to all calls of the second.
    Ends, and moments that are `free`, count from when that was over: what is queued behind a long step is not late by itself.
    """
    row = steps.row(number)
    usual = np.isin(steps.number, times.usual) & (steps.number != number)
    if row is None or usual.sum() < 1:
        return None
    values = steps.of(getattr(steps.record, column))
    if column != "duration_ns":
        values = values - (steps.free_ns if free or column == "end_ns" else steps.before_ns)[:, None]
    if np.isnan(values).mean() > _UNKNOWN_CALLS or np.isnan(values[row]).all():
        return None
    stated = ~np.isnan(values[usual]).all(axis=0)
    more = np.zeros(values.shape[1])
    more[stated] = values[row, stated] - np.nanmedian(values[usual][:, stated], axis=0)
    in_order = np.argsort(steps.order[row])
    return steps.order[row][in_order], np.nan_to_num(more[in_order])


def _by_waits(
    times: StepTimes, number: int, excess: float, inside: Mapping[int, tuple[Ints, Floats]], in_step: Collection[str]
) -> Iterator[Delay]:
    """Ranks that held others up by half of it before they had waited for half of it, in one call or bit by bit; transfers."""
    waited_by = {rank: np.cumsum(np.maximum(more, 0.0)) for rank, (_, more) in inside.items()}
    waits = {rank: first_of(waited >= _WAITS * excess) for rank, waited in waited_by.items()}
    held: dict[int, list[tuple[Call, float]]] = defaultdict(list)
    for members in met(times, inside).values():
        if len(members) < LEAST_MEMBERS:
            continue
        last, other = heapq.nsmallest(2, members, key=lambda call: call.excess)
        if last.excess >= _WAITS * excess:
            there = all_there(times, members) and all(call.at <= waits[call.rank] for call in members)
            if there and not waits_its_turn(times, members):
                yield _delay(times, number, excess, members, last.excess, is_transfer=True)
        elif other.excess > max(last.excess, 0.0):
            held[last.rank].append((last, other.excess - max(last.excess, 0.0)))
    for rank, calls in sorted(held.items()):
        calls.sort(key=lambda each: each[0].at)
        total = np.cumsum([waited for _, waited in calls])
        reached = first_of(total >= _WAITS * excess)
        if reached == len(calls) or calls[reached][0].at > waits[rank] or _left_early(times, number, excess, calls[reached][0]):
            continue
        # What follows is late by the same once more. Who waits bit by bit passes on what it waited.
        call, waited = calls[reached]
        is_spread = waited < _WAITS * float(total[reached])
        # Bit by bit, what it waits later in the step counts too: a slow transfer makes its members late to other calls.
        passed_on = float(max(waited_by[rank][call.at] / total[reached], is_spread * waited_by[rank][-1] / total[-1]))
        if passed_on <= _PASSED_ON:
            waited = float(total[reached]) if is_spread else waited
            on_host = _on_host(times, number, excess, call)
            of_equals = fsum(gap for each, gap in calls if times.ranks[rank].record.label(each.place) in in_step)
            found = _delay(times, number, excess, (call,), waited, on_host=on_host, is_spread=is_spread, passed_on=passed_on)
            own = 0.0 if found.by_arrivals else excess - float(inside[rank][1].sum())
            yield replace(found, equals_ns=of_equals, own_ns=own)


def _of_step_before(
    times: StepTimes, number: int, excess: float, inside: Mapping[int, tuple[Ints, Floats]], in_step: Collection[str]
) -> Iterator[Delay]:
    """Transfers that the step before ended with, while its hosts went on: their members come late to this one, and wait in it
    for nobody.
    """
    before = _excesses(times, number - 1, "duration_ns")
    waiting = {rank for rank, (_, more) in inside.items() if np.maximum(more, 0.0).sum() >= _WAITS * excess}
    for delay in _by_waits(times, number - 1, excess, before, in_step) if waiting else ():
        if delay.is_transfer and waiting.isdisjoint(delay.ranks):
            yield replace(delay, step=number)


def _left_early(times: StepTimes, number: int, excess: float, call: Call) -> bool:
    """Whether a member only was through before the others: it waits for them as much longer in its very next call.

    Messages complete one by one: who exchanges nothing with a slow member leaves as usual. Who came late waits for nobody then.
    """
    steps = times.ranks[call.rank]
    if stem_of(steps.record.names.kinds[int(steps.record.kind[call.place])]) not in SEPARATE:
        return False
    here, after = (_excess(times, steps, each, "duration_ns") for each in (number, number + 1))
    following = [*(here[1][call.at + 1 :] if here else ()), *(after[1] if after else ())]
    return bool(following) and following[0] >= _WAITS * excess


def _by_ends(times: StepTimes, number: int, excess: float, ends: Mapping[int, tuple[Ints, Floats]]) -> Iterator[Delay]:
    """The call that is the first to end late for all of its members; of a message, the one who sent it worked before."""
    # Who is late bit by bit is never late at once: there the first call beyond the half of it shows nothing.
    first = {
        rank: first_of((more >= _WAITS * excess) & (np.diff(more, prepend=0.0) >= _WAITS * excess))
        for rank, (_, more) in ends.items()
    }
    for members in met(times, ends).values():
        if not all_there(times, members) or any(call.at != first[call.rank] for call in members):
            continue
        on_host = [call for call in members if _on_host(times, number, excess, call)]
        if len(on_host) > 1:
            continue  # they waited for the step before this one: hosts that run ahead issue it when that one ends
        # Behind a long step all hosts are as late: who comes late though that was over is late by itself.
        on_host = on_host or [call for call in members if _late_to_step(times, number, excess, call.rank, free=True)]
        blamed = on_host or workers(times, ends, members)
        yield _delay(times, number, excess, blamed, excess, on_host=bool(on_host) or None, by_ends=True)


def _on_host(times: StepTimes, number: int, excess: float, call: Call) -> bool | None:
    """Whether the host itself made the call late, later in its step than in others; None where the source does not tell."""
    steps = times.ranks[call.rank]
    issued = _excess(times, steps, number, "enqueued_ns")
    if issued is None:
        return None
    is_late = _is_later(times, number, excess, call.rank, issued[1], call.at)
    # What a host did before the first call of a trace, and how late it came to it, is not known.
    return True if is_late else None if steps.begin[steps.row(number)] == 0 else False


def _late_to_step(times: StepTimes, number: int, excess: float, rank: int, *, free: bool = False) -> bool:
    """Whether the host came late to the first call of the step already.

    Where all hosts wait for the end of a step, each comes as late to the next one as the last; who comes late though the calls
    of the step before were over (`free`) did not wait for these.
    """
    issued = _excess(times, times.ranks[rank], number, "enqueued_ns", free=free)
    return issued is not None and _is_later(times, number, excess, rank, issued[1], 0, free=free)


def _is_later(times: StepTimes, number: int, excess: float, rank: int, late: Floats, at: int, *, free: bool = False) -> bool:
    """Whether a host is late (ns by call) to a call by itself: all that run ahead come late to a step that follows a long one.

    A host that holds others up waits for no device, and comes to the step before them.
    """
    if late[at] < _WAITS * excess:
        return False
    others = [steps for other, steps in times.ranks.items() if other != rank][:_MOST_OTHERS]
    alike = [float(found[1][0]) for steps in others if (found := _excess(times, steps, number, "enqueued_ns", free=free))]
    shared = min(float(np.median(alike)) if alike else 0.0, float(late[0]))
    return bool(late[at] - max(shared, 0.0) >= _WAITS * excess)


def _delay(
    times: StepTimes, number: int, excess: float, calls: Sequence[Call], waited: float, *,
    is_transfer: bool = False, is_spread: bool = False, on_host: bool | None = None, by_ends: bool = False,
    passed_on: float = 0.0,
) -> Delay:  # fmt: skip
    first = calls[0]
    record = times.ranks[first.rank].record
    before_step = on_host is not None and any(
        _late_to_step(times, number, excess, first.rank, free=free) for free in {True, not on_host}
    )
    return Delay(
        step=number, excess_ns=excess, ranks=tuple(sorted(call.rank for call in calls)),
        communicator=record.label(first.place), sequence=int(record.sequence[first.place]),
        kind=record.names.kinds[int(record.kind[first.place])], at_ns=int(record.enqueued_ns[first.place]),
        source=(int(record.source_id[first.place]), int(record.locator[first.place])), waited_ns=waited,
        is_transfer=is_transfer, is_spread=is_spread, on_host=None if before_step else on_host, by_ends=by_ends,
        passed_on=passed_on, by_arrivals=bool(record.by_arrivals[first.place]), before_step=before_step,
        is_traced=record.is_marked, at_barrier=bool(record.is_barrier[first.place]),
    )  # fmt: skip
