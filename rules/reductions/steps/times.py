"""How long each step of each rank took, which steps were long, and what is usual for each of their calls.

Ranks count their steps alike by the calls that they made together: a number in a communicator is of one step. A step is long
when the job would have needed less than nine tenths of its time (VenusTrace 5.1 and 5.3, figure 14) and when the steps do not
differ that much anyway. What is usual is taken from steps of the usual length with the usual calls; steps with others
(evaluation, a checkpoint) are not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forensics.rules.reductions.onset import onset_of
from forensics.rules.reductions.steps.programs import Places, Program, programs
from forensics.rules.reductions.steps.records import UNKNOWN, Flags, Ints, Record

Floats = npt.NDArray[np.float64]

# "the criterion for identifying slowdown should first be set below 90% of the average performance" (VenusTrace 5.3).
GATE = 0.9
# A step beyond the spread of the steps: median differences from one to the next, where there are so many that one long step,
# which makes two of them, is not half of them.
_SPREADS, _FEW = 6.0, 5
# Steps on either side of a lasting change of their length.
_SIDES = (5, 5)
# As few as half of the ranks that show one step may show another.
_SHOWN_BY = 2
# Of all steps: those of a length between the usual ones and the long ones. More of them are a spread, and no two lengths.
_BETWEEN = 0.1
# A watchdog sees that a call is over up to so much later.
_ROUND_NS = 250_000_000
# Of all steps, the share whose longest shows what a shorter one is.
_SHORTER = 0.25


@dataclass(frozen=True, slots=True)
class Steps:
    """The whole steps of one rank that have the usual calls.

    `number` counts them as the other ranks do, `begin` is the place of the first call of each in the record. `order` (steps x
    calls) has the places of the calls of a step, so that column k is the same call of the program in each. `length` is in ns,
    from the first call of a step to that of the next, or between their ends where the host runs ahead.
    """

    record: Record
    number: Ints
    begin: Ints
    order: Places
    length: Floats

    def of(self, column: npt.NDArray[np.int64]) -> Floats:
        """A column of times in ns by step and call; what is unknown is NaN."""
        times = column[self.order]
        return np.where(times == UNKNOWN, np.nan, times.astype(np.float64))

    def durations(self, numbers: Ints) -> Floats:
        """ns inside each call (column) of some steps."""
        return self.of(self.record.duration_ns)[np.isin(self.number, numbers)]

    @property
    def before_ns(self) -> Floats:
        """When the host made the last call before each step (ns); NaN where the record begins with the step, or has no time.

        Of the first step of a trace it is taken to be as long before the mark of the step as in the others.
        """
        before = self.record.enqueued_ns[np.maximum(self.begin - 1, 0)]
        found = np.where((self.begin > 0) & (before != UNKNOWN), before.astype(np.float64), np.nan)
        if not self.record.is_marked or np.isnan(found).all():
            return found
        marks = self.record.step_begin_ns[self.begin].astype(np.float64)
        return np.where(np.isnan(found), marks - np.nanmedian(marks - found), found)

    @property
    def free_ns(self) -> Floats:
        """When the last call before each step was over too (ns), if that is known: hosts that run ahead make it long before."""
        ended = self.record.end_ns[np.maximum(self.begin - 1, 0)]
        return np.fmax(self.before_ns, np.where((self.begin > 0) & (ended != UNKNOWN), ended.astype(np.float64), np.nan))

    def row(self, number: int) -> int | None:
        """The row of a step; None where the rank does not show it whole."""
        found = np.flatnonzero(self.number == number)
        return int(found[0]) if len(found) else None


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Steps of all ranks that have whole ones, and of the job: `length` in ns (median over ranks) of each `number`.

    `from_start`: the records of most ranks reach back to the first step of the job.
    """

    ranks: Mapping[int, Steps]
    number: Ints
    length: Floats
    from_start: bool = False

    def shared_by(self, ranks: Iterable[int]) -> Ints:
        """Numbers of the steps that the job and all of these ranks have whole."""
        shared = set(self.number.tolist()).intersection(*(self.ranks[rank].number.tolist() for rank in ranks))
        return np.array(sorted(shared), np.int64)

    @property
    def is_traced(self) -> bool:
        """Whether a profiler saw the steps."""
        return any(steps.record.is_marked for steps in self.ranks.values())

    @property
    def typical_ns(self) -> float:
        """The length of a usual step."""
        return float(np.median(self.length)) if len(self.length) else 0.0

    @property
    def usual(self) -> Ints:
        """Numbers of the steps that tell what is usual: not longer than a tenth over the shorter ones."""
        if not len(self.length):
            return self.number
        return self.number[self.length <= np.quantile(self.length, _SHORTER, method="lower") / GATE]

    def long(self, gate: float = GATE) -> list[tuple[int, float]]:
        """Steps that were long (the usual one is below `gate` of it), each with the ns by which it was longer than usual."""
        if not len(self.usual):
            return []
        is_usual = np.isin(self.number, self.usual)
        usual = float(np.median(self.length[is_usual]))
        excess = self.length - usual
        # From one step to the next: where a job became slower once, its steps differ by no more than before.
        spread = float(np.median(np.abs(np.diff(self.length)))) if len(self.length) > _FEW else 0.0
        stands_out = excess > _SPREADS * spread
        # Every third step may be long: then those between them tell the spread.
        between = np.array([float((~is_usual & (excess < each / 2)).mean()) for each in excess.tolist()])
        apart = np.abs(np.diff(self.length[is_usual]))
        usual_spread = float(np.median(apart)) if len(apart) > 1 else 0.0
        recurs = (excess > _SPREADS * usual_spread) & (between <= _BETWEEN) if len(apart) > 1 else stands_out
        # Where others, more than a few, are neither usual nor stand apart, there are not two lengths, but many.
        recurs &= float((~is_usual & ~stands_out & ~recurs).mean()) <= _BETWEEN
        # A job warms up over several steps: memory pools, compiled code, autotuning.
        warm = (not self.from_start) | np.logical_or.accumulate(is_usual)
        # The step itself might have been a shorter one, by as much as steps differ, where there are enough to tell that.
        chosen = (self.length * gate > usual - min(spread, usual_spread)) & (stands_out | recurs) & warm
        pairs = zip(self.number[chosen].tolist(), excess[chosen].tolist(), strict=True)
        return [(number, excess) for number, excess in pairs]

    def between(self, long: Iterable[tuple[int, float]]) -> tuple[float, ...]:
        """The ns by which those steps were longer than usual that are neither usual nor long (`long`)."""
        ordinary = np.union1d(self.usual, [number for number, _ in long])
        found = self.length[~np.isin(self.number, ordinary)]
        return tuple((found - np.median(self.length[np.isin(self.number, self.usual)])).tolist()) if len(found) else ()


def longer_since(length: Floats) -> int | None:
    """The place from which on steps (ns) are lastingly longer, those before below the gate of them; None where none is."""
    return onset_of(length.tolist(), _SIDES, lambda before, after, first: before < min(after, first) * GATE)


def step_times(found: Mapping[int, Record]) -> StepTimes:
    """Times of the steps of some ranks."""
    of = programs(found)
    shift = _shifts(found, {rank: program.begins for rank, program in of.items()})
    ranks = {
        rank: steps
        for rank, record in found.items()
        if rank in shift and (steps := _steps(record, of[rank], shift[rank])) is not None
    }
    number, length = _of_job(ranks.values())
    from_start = 2 * sum(_from_the_start(steps.record) for steps in ranks.values()) > len(ranks)
    return StepTimes(ranks, number, length, from_start)


def _steps(record: Record, program: Program, shift: int) -> Steps | None:
    record = program.of(record)
    # The first step of a job pays for what is made once: memory, compiled code, connections.
    first = int(_from_the_start(record))
    behind = len(record) - (not record.is_marked)  # without marks, only a call behind a step shows that it ended
    index, begins = program.index, program.begins
    rows = np.flatnonzero((index >= first) & (begins[index + 1] <= behind))
    begin, end = begins[index[rows]], begins[index[rows] + 1]
    length, known = _lengths(record, begin, end)
    rows = rows[known]
    if not len(rows):
        return None
    order = program.order if len(rows) == len(index) else program.order[rows]
    return Steps(record, index[rows] + shift, begin[known], order, length[known])


def _lengths(record: Record, begin: Ints, end: Ints) -> tuple[Floats, Flags]:
    """The ns of steps, from mark to mark where there are marks, and which of them are known."""
    if record.is_marked:
        first, last = record.step_begin_ns[begin], record.step_end_ns[begin]
    elif _runs_ahead(record, begin):
        first, last = record.end_ns[np.maximum(begin - 1, 0)], record.end_ns[end - 1]
        first = np.where(begin > 0, first, UNKNOWN)
    else:
        first, last = record.enqueued_ns[begin], record.enqueued_ns[end]
    return (last - first).astype(np.float64), (first != UNKNOWN) & (last != UNKNOWN)


def _runs_ahead(record: Record, begin: Ints) -> bool:
    """Whether the host mostly begins a step while the device is in the one before: only ends then tell how long steps are."""
    begin = begin[begin > 0]
    over, called = record.end_ns[begin - 1], record.enqueued_ns[begin]
    known = (over != UNKNOWN) & (called != UNKNOWN)
    return bool(2 * np.count_nonzero(over[known] - called[known] > _ROUND_NS) > np.count_nonzero(known))


def _from_the_start(record: Record) -> bool:
    """Whether the record reaches back to the first call of a communicator, or to the first step that was counted."""
    if record.is_marked:
        return int(record.step[record.step != UNKNOWN][0]) == 0
    joint = record.sequence[~record.is_message & (record.sequence != UNKNOWN)]
    return bool(len(joint)) and int(joint.min()) <= 1


def _shifts(found: Mapping[int, Record], begins: Mapping[int, Ints]) -> dict[int, int]:
    """What to add to the number of a step in the record of a rank so that all ranks count alike; ranks that met no other left
    out.

    The largest set of ranks that is tied together by calls counts; ties go by the lowest rank.
    """
    marked = {rank: _marked(record, begins[rank]) for rank, record in found.items() if len(begins[rank])}
    owners: dict[tuple[int, int], list[int]] = {}
    for rank, calls in marked.items():
        for call in calls:
            owners.setdefault(call, []).append(rank)
    left, best = set(marked), dict[int, int]()
    while left:
        tied = _tied(min(left), marked, owners)
        left -= tied.keys()
        best = max(best, tied, key=len)
    return best


def _tied(
    first: int, marked: Mapping[int, Mapping[tuple[int, int], int]], owners: dict[tuple[int, int], list[int]]
) -> dict[int, int]:
    """Shifts of the ranks that are tied to one; their calls are taken out of `owners`, for each ties its ranks once."""
    shifts, queue = {first: 0}, [first]
    while queue:
        rank = queue.pop()
        for call, step in marked[rank].items():
            for other in owners.pop(call, ()):
                if other not in shifts:
                    shifts[other] = shifts[rank] + step - marked[other][call]
                    queue.append(other)
    return shifts


def _marked(record: Record, begins: Ints) -> dict[tuple[int, int], int]:
    """The last call of each kind and step, by communicator and number, with the number of the step in this record."""
    joint = np.flatnonzero(~record.is_message & (record.sequence != UNKNOWN))[::-1]
    step = np.searchsorted(begins, joint, side="right") - 1
    # Neither is below -1, nor is there a place beyond the begins: one number stands for both.
    _, last = np.unique(record.token[joint].astype(np.int64) * (len(begins) + 1) + step, return_index=True)
    at = joint[last]
    calls = zip(record.communicator[at].tolist(), record.sequence[at].tolist(), strict=True)
    return dict(zip(calls, step[last].tolist(), strict=True))


def _of_job(ranks: Iterable[Steps]) -> tuple[Ints, Floats]:
    known = list(ranks)
    if not known:
        return np.empty(0, np.int64), np.empty(0)
    number = np.concatenate([steps.number for steps in known])
    length = np.concatenate([steps.length for steps in known])
    numbers, shown = np.unique(number, return_counts=True)
    # Of a record that was cut, steps may be stated wrongly: one that few ranks show says little of the job.
    numbers = numbers[_SHOWN_BY * shown >= shown.max()]
    return numbers, np.array([np.median(length[number == each]) for each in numbers])
