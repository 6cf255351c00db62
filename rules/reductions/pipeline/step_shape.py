"""Microbatches of a step, chunks of the model on a stage, and the schedule: as the messages of a pipeline show them.

A configuration is a claim, as sizes of groups are: what the calls of a whole step show decides, and says where it was another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.pipeline.configuration import Configuration
from forensics.rules.reductions.pipeline.iteration import Iteration, UnknownPassesError, iteration
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.pipeline.passes import FORWARD
from forensics.rules.reductions.pipeline.schedules import Pass, Schedule, order
from forensics.rules.reductions.pipeline.traced_places import TracedPlaces

_TRIED = 4
"""Chains of stages that are looked at until one shows a whole step."""
_CONFIGURED: Mapping[str, frozenset[Schedule]] = {
    "gpipe": frozenset({Schedule.GPIPE}),
    "1f1b": frozenset({Schedule.ONE_F_ONE_B}),
    "interleaved1f1b": frozenset({Schedule.INTERLEAVED, Schedule.INTERLEAVED_OLDER}),
    "interleavedzerobubble": frozenset({Schedule.ZERO_BUBBLE}),
}
"""Schedules by the names of torch's classes, in small letters; other names are not known here and contradict nothing."""


@dataclass(frozen=True, slots=True)
class StepShape:
    """How a step is made up; None, or no schedule, where it is not known.

    `schedules` are all those that order the passes of the recorded pipeline as it did: with few microbatches, or where the
    gradients of weights are not seen apart, several do. `method` and `confidence` are as in `AxisOf`. `contradictions` are
    settings that the calls belie.
    """

    microbatches: int | None = None
    chunks: int | None = None
    schedules: tuple[str, ...] = ()
    method: str = "nothing"
    confidence: str = "unknown"
    contradictions: tuple[str, ...] = ()


@reduction
def step_shape(layout: Layout, recorded: CallPlaces, traced: TracedPlaces, configuration: Configuration) -> StepShape:
    """Find it in the calls of one pipeline, else in the configuration."""
    made = next((found for places in (recorded, traced) if (found := _seen(layout, places)) is not None), None)
    if made is None:
        return _configured(layout, configuration)
    microbatches, chunks, schedules = shape_of(made)
    belied = tuple(_belied(microbatches, chunks, schedules, layout, configuration))
    return StepShape(microbatches, chunks, schedules, "calls", "inferred", belied)


def shape_of(made: Iteration) -> tuple[int, int, tuple[Schedule, ...]]:
    """Microbatches and chunks of an iteration, and the schedules that order the passes of every stage as it did."""
    microbatches, chunks = int(made.microbatch.max()) + 1, int(made.chunk.max()) + 1
    return microbatches, chunks, tuple(each for each in Schedule if _orders(each, made, microbatches, chunks))


def _seen(layout: Layout, places: CallPlaces) -> Iteration | None:
    tried = sorted(layout.pipelines)[:_TRIED]
    places.read(chain.from_iterable(tried))
    return next((made for stages in tried if (made := _passes(stages, places)) is not None), None)


def _passes(stages: tuple[int, ...], places: CallPlaces) -> Iteration | None:
    try:
        made = iteration([stages], places)
    except UnknownPassesError:
        return None
    return made if made.graph.size else None


def _orders(schedule: Schedule, made: Iteration, microbatches: int, chunks: int) -> bool:
    try:
        return all(
            list(_worked(made, work.passes.tolist()))
            == list(_expected(schedule, work.stage, len(made.stages), microbatches, chunks))
            for work in made.works
        )
    except ValueError:
        return False  # the schedule is not made for these numbers


def _worked(made: Iteration, nodes: list[int]) -> Iterator[tuple[bool, int, int]]:
    for node in nodes:
        yield bool(made.direction[node] == FORWARD), int(made.microbatch[node]), int(made.chunk[node])


def _expected(schedule: Schedule, stage: int, stages: int, microbatches: int, chunks: int) -> Iterator[tuple[bool, int, int]]:
    """The passes of a stage without the gradients of weights, which send nothing."""
    passes = order(schedule, stage, stages, microbatches, chunks)
    for kind, microbatch, chunk in zip(passes.kind.tolist(), passes.microbatch.tolist(), passes.chunk.tolist(), strict=True):
        if kind != Pass.WEIGHT:
            yield kind == Pass.FORWARD, microbatch, chunk


def _configured(layout: Layout, configuration: Configuration) -> StepShape:
    named = configuration.text("pipeline.schedule")
    schedules = (named,) if named else ()
    chunks = configuration.number("pipeline.chunks")
    if layout.microbatches is None and chunks is None and not schedules:
        return StepShape()
    return StepShape(layout.microbatches, chunks, schedules, "configured", "assumed")


def _belied(
    microbatches: int, chunks: int, schedules: tuple[Schedule, ...], layout: Layout, configuration: Configuration
) -> Iterator[str]:
    """Settings that a whole step contradicts."""
    if layout.microbatches not in (None, microbatches):
        yield (
            f"the configuration makes {layout.microbatches} microbatches of a step, its messages show {microbatches}: "
            "it is of another run, or the batch still grows"
        )
    if configuration.number("pipeline.chunks") not in (None, chunks):
        yield f"pipeline.chunks is {configuration.text('pipeline.chunks')}, but messages show {chunks} on a stage"
    named = configuration.text("pipeline.schedule") or ""
    expected = _CONFIGURED.get(named.removeprefix("schedule"), frozenset())
    if schedules and expected and expected.isdisjoint(schedules):
        yield f"pipeline.schedule is {named}, but passes are in the order of {' or '.join(schedules)}"
