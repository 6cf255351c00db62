"""Stages of a pipeline of single ranks that work longer than they did before, or than all others do.

Against its own history a stage is judged in the steps that took longer: what it worked longer must account for that, and the
others must have worked as before, since longer data is longer for all. Who is slow may change from step to step. Without a
history, a stage between the first and the last is compared with all others: those two have an embedding or a head.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.pipeline.stage_work import StageWork
from forensics.rules.reductions.steps.records import Flags
from forensics.rules.reductions.steps.times import Floats, StepTimes, longer_since

_LEAST_STEPS, _LEAST_BY_ENDS = 3, 6
"""That a stage must be slow in, and usual ones: ends of single calls are up to a round of a watchdog late."""
_SIGMAS = 4.0
_LEAST_OF_STEP = 0.5
"""Of what a step took longer, the part that the work of the stage accounts for."""
_MOST_OF_OTHERS = 0.5
"""Of what the stage works longer, the part that stages do that are as usual."""
_LEAST_FORWARD, _SIGMAS_FORWARD = 0.1, 3.0
"""Of what it works longer, the part in its forward, and how clear that must be: a last backward also waits for a slow stage
before it, and for the backwards of its own that are not done yet."""
_PART_OF_STAGES = 4
"""At most one of so many stages is slow; if more are, it is the job."""
_FACTOR = 1.5
""""We set m = 50% to identify whether a node experiences a slowdown" (VenusTrace section 4)."""
_ROUND_NS = 100e6 / 12**0.5
"""Standard deviation of an end that is seen in rounds of 100 ms."""


@dataclass(frozen=True, slots=True)
class SlowStage:
    """A stage whose rank works `slow_ns` on a microbatch instead of `usual_ns`, in some of `compared` steps.

    `numbers` are those steps, `lost_ns` is what they were longer by for it in all, `step_ns` their median length.
    `by_peers`: what is usual is shown by the other stages, not by its own past.
    """

    stage: int
    rank: int
    numbers: tuple[int, ...]
    compared: int
    usual_ns: float
    slow_ns: float
    lost_ns: float
    step_ns: float
    by_peers: bool = False


@dataclass(frozen=True, slots=True)
class SlowStages:
    """Slow stages, most lost first, of `compared` steps of a pipeline of `ranks`; false where none could be compared.

    `first` is the number of the first of these steps. `of_past`: the job stands still, and these are steps before that.
    """

    found: tuple[SlowStage, ...] = ()
    compared: int = 0
    ranks: tuple[int, ...] = ()
    by_ends: bool = False
    first: int = 0
    of_past: bool = False

    def __bool__(self) -> bool:
        return self.compared > 0


@reduction
def slow_stages(work: StageWork) -> SlowStages:
    """By its own past where the job has become slower, else by the other stages."""
    least = _LEAST_BY_ENDS if work.by_ends else _LEAST_STEPS
    if not work or len(work.number) < least:
        return SlowStages()
    slow, usual = _split(work)
    found = list(_by_history(work, slow, usual)) if min(slow.sum(), usual.sum()) >= least else []
    if not slow.any():
        found += _by_peers(work)
    ordered = sorted(found, key=lambda each: -each.lost_ns)
    return SlowStages(tuple(ordered), len(work.number), work.ranks, work.by_ends, int(work.number[0]), work.of_past)


def _split(work: StageWork) -> tuple[Flags, Flags]:
    """Which steps are slow, and which tell what is usual: from one step on, or now and then."""
    onset = longer_since(work.length)
    if onset is not None:
        since = np.arange(len(work.number)) >= onset
        return since, ~since
    times = StepTimes({}, work.number, work.length, work.from_start)
    slow = np.isin(work.number, [number for number, _ in times.long()])
    return slow, np.isin(work.number, times.usual) & ~slow


def _by_history(work: StageWork, slow: Flags, usual: Flags) -> Iterator[SlowStage]:
    """Stages that account for the slow steps: each in its own ones; by ends of calls in all of them together."""
    longer = work.length - np.median(work.length[usual])
    before = _level(work.both[:, usual], by_ends=work.by_ends)
    late = _late_together(work, slow, usual, longer) if work.by_ends else _late(work, before, slow, usual, longer)
    least = _LEAST_BY_ENDS if work.by_ends else _LEAST_STEPS
    for stage in np.flatnonzero(late.sum(axis=1) >= least).tolist():
        at = late[stage]
        slow_ns = float(_level(work.both[stage, at], by_ends=work.by_ends))
        lost = float(np.minimum(work.passes * (slow_ns - before[stage]), longer[at]).sum())
        yield SlowStage(
            stage, work.ranks[stage], tuple(work.number[at].tolist()), len(work.number), float(before[stage]), slow_ns, lost,
            float(np.median(work.length[at])),
        )  # fmt: skip


def _level(values: Floats, *, by_ends: bool) -> Floats:
    """What is typical over steps: of values in rounds of a watchdog, their mean."""
    if by_ends:  # not `nanmean`, which warns of a stage that is stated in no step
        return np.asarray(values.mean(axis=-1))
    return np.asarray(np.nanmedian(values, axis=-1))


def _late(work: StageWork, before: Floats, slow: Flags, usual: Flags, longer: Floats) -> Flags:
    """Which stages account for each slow step (stages x steps): few, and no other one worked nearly as much longer."""
    more = np.nan_to_num(work.both - before[:, None])
    noise = 1.5 * np.nanmedian(np.abs(work.both[:, usual] - before[:, None]))
    most = more.max(axis=0)
    late = (more > _MOST_OF_OTHERS * most) & (more >= _SIGMAS * noise) & (work.passes * more >= _LEAST_OF_STEP * longer)
    alone = (more > _MOST_OF_OTHERS * most).sum(axis=0) <= _most(work)
    return np.asarray(late & alone & slow & (longer > 0))


def _most(work: StageWork) -> int:
    return max(1, len(work.ranks) // _PART_OF_STAGES)


def _late_together(work: StageWork, slow: Flags, usual: Flags, longer: Floats) -> Flags:
    """The stage that accounts for all slow steps on average, in each of them (stages x steps)."""
    more, error = _risen(work.both, slow, usual)
    forward, forward_error = _risen(work.forward, slow, usual)
    found = np.zeros((len(work.ranks), len(work.number)), np.bool_)
    if not np.isfinite(more).any():
        return found
    stage = int(np.nanargmax(more))
    others = more.copy()
    others[stage + 1 : stage + 2] = forward[stage + 1 : stage + 2]  # its last backward waits for the slow stage
    others[stage] = 0.0
    clear = more[stage] >= _SIGMAS * error[stage] and np.nanmax(others) <= _MOST_OF_OTHERS * more[stage]
    ahead = forward[stage] >= max(_LEAST_FORWARD * more[stage], _SIGMAS_FORWARD * forward_error[stage])
    if clear and ahead and work.passes * more[stage] >= _LEAST_OF_STEP * longer[slow].mean():
        found[stage, slow] = True
    return found


def _risen(values: Floats, slow: Flags, usual: Flags) -> tuple[Floats, Floats]:
    """By how much the mean of the slow steps is above that of the usual ones, by stage, and its standard error."""
    stated = np.isfinite(values).all(axis=1)
    more, error = np.full((2, len(values)), np.nan)
    for stage in np.flatnonzero(stated).tolist():
        parts = values[stage, slow], values[stage, usual]
        more[stage] = parts[0].mean() - parts[1].mean()
        error[stage] = np.sqrt(sum(max(float(part.var()), _ROUND_NS**2) / len(part) for part in parts))
    return more, error


def _by_peers(work: StageWork) -> Iterator[SlowStage]:
    """A stage between the first and the last that works much longer than every other one, all the time."""
    each = _level(work.both, by_ends=work.by_ends)
    error = _SIGMAS * (work.both.std(axis=1) / len(work.number) ** 0.5 if work.by_ends else np.zeros(len(each)))
    stage = int(np.nanargmax(each)) if np.isfinite(each).any() else 0
    others = np.delete(each, stage)
    if not 0 < stage < len(each) - 1 or np.isfinite(others).sum() < _LEAST_STEPS:
        return
    usual = float(np.nanmax(others))
    if each[stage] - error[stage] < _FACTOR * usual:
        return
    middle = float(np.nanmedian(others))
    lost = float(work.passes * (each[stage] - usual) * len(work.number))
    yield SlowStage(
        stage, work.ranks[stage], tuple(work.number.tolist()), len(work.number), middle, float(each[stage]), lost,
        float(np.median(work.length)), by_peers=True,
    )  # fmt: skip
