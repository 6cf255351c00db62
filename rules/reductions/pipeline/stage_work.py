"""How long each stage of a pipeline works on a microbatch, step after step, where no other rank has the same work.

With times inside calls, the passes of each step follow from when both ends leave its messages. Without, the first forward and
the last backward of a step tell: then the pipeline is empty, so that whoever receives from a stage waits for it already, and
what lies between its receive and its send is its own pass. Single ends are as watchdogs saw them, up to a round late; over
many steps that is the same for both ends. All moments of a difference are on the clock of one rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.pipeline.dated import in_messages
from forensics.rules.reductions.pipeline.fitted import fitted
from forensics.rules.reductions.pipeline.iteration import Iteration, UnknownPassesError, Work, iteration
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.pipeline.passes import BACKWARD, FORWARD
from forensics.rules.reductions.pipeline.slow_steps import in_order, pipelines_of
from forensics.rules.reductions.pipeline.traced_places import TracedPlaces
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.steps.records import Flags, Ints, Recorded
from forensics.rules.reductions.steps.times import Floats, StepTimes, step_times

_MOST_MESSAGES = 12_000
"""Of all steps that are dated: more takes seconds."""
_LEAST_STAGES = 3


@dataclass(frozen=True, slots=True, eq=False)
class StageWork:
    """What each stage works on one microbatch: `forward` and `backward` in ns (stages x steps), NaN where it is not stated.

    `ranks` are those of the stages, `number` counts steps as `StepTimes` does, `length` is theirs in ns. A stage has `passes`
    of each direction in a step. `by_ends`: shown by ends of calls, as watchdogs saw them; the last stage then has forward and
    backward in one. `from_start` is that of `StepTimes`, `of_past`: the job stands still, and these are steps before that.
    False where there is none.
    """

    ranks: tuple[int, ...] = ()
    number: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    length: Floats = field(default_factory=lambda: np.empty(0))
    forward: Floats = field(default_factory=lambda: np.empty((0, 0)))
    backward: Floats = field(default_factory=lambda: np.empty((0, 0)))
    passes: int = 0
    by_ends: bool = False
    from_start: bool = False
    of_past: bool = False

    def __bool__(self) -> bool:
        return bool(self.ranks)

    @property
    def both(self) -> Floats:
        """Forward and backward of one microbatch in ns (stages x steps); what only one of them tells counts alone."""
        return np.where(self.is_known, np.nan_to_num(self.forward) + np.nan_to_num(self.backward), np.nan)

    @property
    def is_known(self) -> Flags:
        """Where a forward is known (stages x steps)."""
        return np.asarray(np.isfinite(self.forward))


@reduction
def stage_work(
    times: StepTimes, layout: Layout, recorded: CallPlaces, traced: TracedPlaces, liveness: Liveness, records: Recorded
) -> StageWork:
    """Date the passes of all steps of a job that is one pipeline of single ranks; others have equals to be compared with."""
    pipelines = pipelines_of(layout)
    if len(pipelines) != 1 or len(pipelines[0]) != 1 or len(pipelines[0][0]) < _LEAST_STAGES:
        return StageWork()
    of_past = liveness.motion is Motion.STALLED
    known = step_times(records.of()) if of_past else times
    try:
        found = _of_pipeline(known, traced if known.is_traced else recorded, pipelines[0][0])
    except UnknownPassesError:
        return StageWork()
    return replace(found, from_start=known.from_start, of_past=of_past)


def _of_pipeline(times: StepTimes, places: CallPlaces, ranks: tuple[int, ...]) -> StageWork:
    if any(rank not in times.ranks for rank in ranks):
        return StageWork()
    places.learn({rank: times.ranks[rank].record for rank in ranks})
    passes = iteration((ranks,), places)
    numbers = _common(times, ranks, len(passes.pairs))
    inside = {rank: _rows(times, places, rank, numbers, "duration_ns") for rank in ranks}
    timed = np.all([np.isfinite(each).all(axis=1) & (each >= 0).all(axis=1) for each in inside.values()], axis=0)
    by_ends = bool(2 * timed.sum() < len(numbers))  # of steps at the end of a record some calls may not be over
    if by_ends:
        found = _by_ends(passes, {rank: _rows(times, places, rank, numbers, "end_ns") for rank in ranks}, len(numbers))
        timed = np.isfinite(found[0]).any(axis=0)
        found = found[0][:, timed], found[1][:, timed]
    else:
        found = _by_messages(passes, {rank: each[timed] for rank, each in inside.items()}, int(timed.sum()))
    count, length = int((passes.stage == 0).sum()) // 2, times.length[np.isin(times.number, numbers[timed])]
    return StageWork(ranks, numbers[timed], length, *found, count, by_ends=by_ends)


def _common(times: StepTimes, ranks: tuple[int, ...], messages: int) -> Ints:
    """Numbers of the newest steps that all ranks show whole."""
    return times.shared_by(ranks)[-max(_MOST_MESSAGES // max(messages, 1), 1) :]


def _rows(times: StepTimes, places: CallPlaces, rank: int, numbers: Ints, column: str) -> Floats:
    steps = times.ranks[rank]
    return in_order(steps, places, column)[np.isin(steps.number, numbers)]


def _by_messages(passes: Iteration, inside: Mapping[int, Floats], steps: int) -> tuple[Floats, Floats]:
    """By the times inside messages of each step; NaN in steps whose messages do not fit together."""
    usually = fitted(passes, _messages(passes, {rank: np.median(each, axis=0) for rank, each in inside.items()}))
    found = np.full((2, len(passes.stages), steps), np.nan)
    for step in range(steps):
        own = _messages(passes, {rank: each[step] for rank, each in inside.items()})
        try:
            took = fitted(passes, own, usually).kinds[passes.kind]
        except UnknownPassesError:
            continue
        for part, direction in zip(found, (FORWARD, BACKWARD), strict=True):
            chosen = passes.direction == direction
            total = np.bincount(passes.stage[chosen], took[chosen], len(passes.stages))
            part[:, step] = total / np.bincount(passes.stage[chosen], minlength=len(passes.stages))
    return found[0], found[1]


def _messages(passes: Iteration, inside: Mapping[int, Floats]) -> list[Floats]:
    return [in_messages(work, inside[work.rank]) for work in passes.works]


def _by_ends(passes: Iteration, ends: Mapping[int, Floats], steps: int) -> tuple[Floats, Floats]:
    """From the end of a receive to that of the send, of the first forward and of the last backward; both at the last stage."""
    found = np.full((2, len(passes.stages), steps), np.nan)
    for work in passes.works:
        for part, gap in zip(found, _gaps(passes, work), strict=True):
            if gap is not None:
                received, sent = (work.messages[place] for place in gap)
                part[work.stage] = ends[work.rank][:, sent] - ends[work.rank][:, received]
    return found[0], found[1]


def _gaps(passes: Iteration, work: Work) -> Iterator[tuple[int, int] | None]:
    """The receive and the send around the first forward and the last backward of a rank, by place in its messages."""
    forward = work.passes[passes.direction[work.passes] == FORWARD]
    backward = work.passes[passes.direction[work.passes] == BACKWARD]
    if work.stage == len(passes.stages) - 1:  # turns round: its forward sends nothing, its backward receives nothing
        follows = np.flatnonzero(work.passes == backward[0]) - np.flatnonzero(work.passes == forward[0]) == 1
        yield _around(work, forward[0], backward[0]) if follows.all() else None
        yield None
        return
    yield _around(work, forward[0], forward[0])
    yield _around(work, backward[-1], backward[-1])


def _around(work: Work, first: int, last: int) -> tuple[int, int] | None:
    received = int(work.received[work.passes == first][0])
    sent = int(work.sent[work.passes == last][0])
    return None if received < 0 or sent < 0 else (received, sent)
