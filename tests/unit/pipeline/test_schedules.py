"""Schedules: the passes of each stage, what is in flight, and the published lengths of an iteration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.fixtures.simulator.job import Model, Parallelism, TrainingJob
from forensics.fixtures.simulator.job import Schedule as Simulated
from forensics.fixtures.simulator.schedule import slots
from forensics.rules.reductions.pipeline.critical_path import longest
from forensics.rules.reductions.pipeline.dag import Ints
from forensics.rules.reductions.pipeline.schedules import Graph, Order, Pass, Schedule, graph, order

PLAIN = (Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.ZERO_BUBBLE)
INTERLEAVED = (Schedule.INTERLEAVED, Schedule.INTERLEAVED_OLDER)
Shape = tuple[Schedule, int, int, int]


@st.composite
def shapes(draw: st.DrawFn, schedules: tuple[Schedule, ...] = (*PLAIN, *INTERLEAVED)) -> Shape:
    schedule, stages = draw(st.sampled_from(schedules)), draw(st.integers(1, 6))
    if schedule in INTERLEAVED:
        return schedule, stages, stages * draw(st.integers(1, 4)), draw(st.integers(2, 4))
    return schedule, stages, draw(st.integers(1, 12)), 1


def written(passes: Order) -> str:
    """Passes as figures of papers write them: F0 B0, with several chunks F0.1."""
    several = passes.chunk.any()
    return " ".join(
        f"{'FBW'[kind]}{microbatch}" + (f".{chunk}" if several else "")
        for kind, microbatch, chunk in zip(passes.kind, passes.microbatch, passes.chunk, strict=True)
    )


@pytest.mark.parametrize(
    ("schedule", "stage", "words"),
    [
        (Schedule.GPIPE, 0, "F0 F1 F2 B0 B1 B2"),
        (Schedule.ONE_F_ONE_B, 0, "F0 F1 F2 B0 B1 B2"),
        (Schedule.ONE_F_ONE_B, 1, "F0 F1 B0 F2 B1 B2"),
        (Schedule.ONE_F_ONE_B, 2, "F0 B0 F1 B1 F2 B2"),
        (Schedule.ZERO_BUBBLE, 0, "F0 F1 F2 B0 W0 B1 W1 B2 W2"),
        (Schedule.ZERO_BUBBLE, 2, "F0 B0 F1 B1 F2 B2 W0 W1 W2"),
    ],
)
def test_three_microbatches_on_three_stages(schedule: Schedule, stage: int, words: str) -> None:
    assert written(order(schedule, stage, 3, 3)) == words


def test_interleaved_passes_are_those_of_the_published_figure() -> None:
    """Narayanan et al., figure 4, below: four devices, eight microbatches, two chunks each."""
    assert written(order(Schedule.INTERLEAVED, 3, 4, 8, 2)).startswith("F0.0 F1.0 F2.0 F3.0 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1")
    first = written(order(Schedule.INTERLEAVED, 0, 4, 8, 2))
    assert first.startswith("F0.0 F1.0 F2.0 F3.0 F0.1 F1.1 F2.1 F3.1 F4.0 F5.0 F6.0 B0.1 F7.0 B1.1 F4.1 B2.1")


def test_with_as_many_microbatches_as_stages_older_megatron_runs_all_forwards_first() -> None:
    last = written(order(Schedule.INTERLEAVED_OLDER, 1, 2, 2, 2))
    assert last == "F0.0 F1.0 F0.1 F1.1 B0.1 B1.1 B0.0 B1.0"
    assert written(order(Schedule.INTERLEAVED, 1, 2, 2, 2)) == "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0"
    assert written(order(Schedule.INTERLEAVED_OLDER, 1, 2, 4, 2)) == written(order(Schedule.INTERLEAVED, 1, 2, 4, 2))


SIMULATED: dict[str, Simulated] = {"gpipe": "gpipe", "1f1b": "1f1b", "interleaved-older": "interleaved", "zb-h1": "zero-bubble"}


@given(shapes((Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED_OLDER, Schedule.ZERO_BUBBLE)))
@settings(max_examples=60, deadline=None)
def test_simulated_jobs_do_their_passes_in_this_order(shape: Shape) -> None:
    schedule, stages, microbatches, chunks = shape
    model = Model(stages * chunks, 1, 1, 1)
    job = TrainingJob("any", Parallelism(pipeline=stages), model, microbatches, SIMULATED[schedule], chunks)
    for stage in range(stages):
        passes = order(schedule, stage, stages, microbatches, chunks)
        columns = (passes.kind == Pass.FORWARD, passes.microbatch, passes.chunk, passes.kind == Pass.WEIGHT)
        assert list(zip(*(column.tolist() for column in columns), strict=True)) == [tuple(slot) for slot in slots(job, stage)]


@given(shapes(), st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_each_stage_does_each_pass_once_and_no_pass_waits_for_itself(shape: Shape, pipelines: int) -> None:
    schedule, _, microbatches, chunks = shape
    passes = graph(*shape, pipelines=pipelines)  # raises where the order of the stages is a deadlock
    kinds = len(Pass) if schedule is Schedule.ZERO_BUBBLE else 2
    each = np.stack([passes.pipeline, passes.stage, passes.kind, passes.chunk, passes.microbatch])
    assert np.unique(each, axis=1).shape[1] == passes.dag.size == pipelines * shape[1] * microbatches * chunks * kinds
    assert (passes.kind < kinds).all() and (passes.chunk < chunks).all() and (passes.microbatch < microbatches).all()
    assert passes.place.tolist() == list(range(microbatches * chunks * kinds)) * shape[1] * pipelines


@given(shapes(), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_messages_pass_activations_on_and_gradients_back(shape: Shape, pipelines: int) -> None:
    _, stages, microbatches, chunks = shape
    passes = graph(*shape, pipelines=pipelines)
    source, target = passes.dag.source, passes.dag.target
    model_stage = passes.chunk * stages + passes.stage
    across = passes.is_message
    assert (passes.pipeline[source] == passes.pipeline[target]).all()
    assert (passes.microbatch[source] == passes.microbatch[target])[across].all()
    step = (model_stage[target] - model_stage[source])[across]
    assert (step == np.where(passes.is_forward[source][across], 1, -1)).all()
    expected = 2 * (stages * chunks - 1) * microbatches * pipelines if stages > 1 else 0
    assert across.sum() == expected


def in_flight(passes: Graph, until: Pass) -> Ints:
    """Microbatches on the stage of each node, after it, whose forward is done and whose pass `until` is not (one pipeline)."""
    return np.cumsum(passes.is_forward.astype(int) - (passes.kind == until))


def finished(passes: Graph, durations: list[int]) -> float:
    """Makespan with one duration (ns) for each kind of pass."""
    return longest(passes.dag, np.array(durations, dtype=float)[passes.kind]).makespan


@given(shapes((Schedule.GPIPE, Schedule.ONE_F_ONE_B)), st.integers(1, 9), st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_an_iteration_is_as_long_as_published(shape: Shape, forward: int, backward: int) -> None:
    """Bubble of (stages - 1)(f + b): Narayanan et al., section 2.2.1."""
    assert finished(graph(*shape), [forward, backward]) == (shape[2] + shape[1] - 1) * (forward + backward)


@given(shapes(INTERLEAVED), st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_interleaving_divides_the_bubble_by_the_chunks(shape: Shape, each: int) -> None:
    """Narayanan et al., section 2.2.2; durations are of one chunk, backward twice forward."""
    _, stages, microbatches, chunks = shape
    assert finished(graph(*shape), [each, 2 * each]) == (microbatches * chunks + stages - 1) * 3 * each


@given(st.integers(1, 8), st.integers(0, 9), st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_zero_bubble_fills_the_end_with_the_weights(stages: int, more: int, each: int) -> None:
    """Bubble of (stages - 1)(f + b - w), with no more in flight than 1F1B: Qi et al., table 1 of ICLR 2024."""
    microbatches = stages + more
    passes = graph(Schedule.ZERO_BUBBLE, stages, microbatches)
    assert finished(passes, [each, each, each]) == (3 * microbatches + stages - 1) * each
    assert in_flight(passes, Pass.WEIGHT).max() <= stages


@given(shapes((Schedule.ONE_F_ONE_B,)))
@settings(max_examples=60, deadline=None)
def test_one_forward_one_backward_keeps_few_microbatches(shape: Shape) -> None:
    _, stages, microbatches, _ = shape
    passes = graph(*shape)
    flying = in_flight(passes, Pass.BACKWARD)
    for stage in range(stages):
        assert flying[passes.stage == stage].max() == min(stages - stage, microbatches)


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ((Schedule.INTERLEAVED, 4, 6, 2), "6 microbatches: .* multiple of 4"),
        ((Schedule.INTERLEAVED, 4, 8, 1), "needs several"),
        ((Schedule.ONE_F_ONE_B, 4, 8, 2), "2 chunks"),
        ((Schedule.GPIPE, 0, 8, 1), "0 stages"),
        ((Schedule.GPIPE, 4, 0, 1), "0 microbatches"),
    ],
)
def test_numbers_that_a_schedule_is_not_made_for_are_refused(shape: Shape, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        graph(*shape)


def test_a_stage_outside_the_pipeline_is_refused() -> None:
    with pytest.raises(ValueError, match="stage 4 of 4"):
        order(Schedule.GPIPE, 4, 4, 2)
