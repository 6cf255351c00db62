"""A rank of a pipeline whose device computes longer than those with the same work, by the kernels of traces alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.simulation import simulate
from forensics.model import Cause, Confidence, StageName
from forensics.rules.diagnosis import diagnose
from forensics.rules.engine import supply_of
from forensics.rules.reductions.frontier.matrix import Column, StageMatrix
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.frontier.verdicts import FrontierWindow
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.device_work import DeviceWork, device_work, finding_of
from forensics.rules.reductions.pipeline.layout import AxisOf, Layout
from forensics.rules.reductions.pipeline.places import Place
from tests.unit.pipeline.simulated import traced_case_of
from tests.unit.simulator.small_jobs import DENSE

Floats = npt.NDArray[np.float64]

MS = 1e6
STAGES = ((0, 1, 2, 3), (4, 5, 6, 7))
"""Two stages in four replicas; each rank has one peer behind or before it."""
PIPELINES = tuple(zip(*STAGES, strict=True))
SLOW = 5
FORWARD, BACKWARD = 0, 1


def layout(*, pipelines: bool = True) -> Layout:
    data = {f"data {stage[0]}": stage for stage in STAGES}
    pipes = {f"pipe {pipe[0]}": pipe for pipe in PIPELINES} if pipelines else {}
    axes = {**dict.fromkeys(data, AxisOf(Axis.DATA)), **dict.fromkeys(pipes, AxisOf(Axis.PIPELINE))}
    return Layout(axes, {**data, **pipes}, pipelines=PIPELINES if pipelines else ())


def sound(steps: int = 3) -> Floats:
    """Devices compute 100 ms in forward and 200 ms in backward passes, each step and rank by up to a hundredth more."""
    jitter = 1 + 0.01 * np.random.default_rng(7).random((2, steps, 8))
    return np.array([100 * MS, 200 * MS])[:, None, None] * jitter


def windows(passes: Floats, *, messages: bool = True) -> FrontierWindows:
    steps = passes.shape[1]
    device = {StageName.FORWARD.value: passes[FORWARD], StageName.BACKWARD.value: passes[BACKWARD]}
    matrix = StageMatrix(
        "all ranks", None, "kineto", np.arange(steps), tuple(range(8)), (Column("forward"), Column("backward")),
        np.moveaxis(passes, 0, 1), np.full((steps, 8), 500 * MS), np.zeros((steps, 8), np.int64), None, device=device,
        paths=tuple(f"ranks/{rank}/trace.json" for rank in range(8)), messages=messages,
    )  # fmt: skip
    return FrontierWindows((FrontierWindow(matrix),))


def found(passes: Floats, known: Layout | None = None) -> list[int]:
    return [item.rank for item in device_work(windows(passes), known or layout()).found]


def test_a_device_that_computes_longer_in_every_step_is_found() -> None:
    passes = sound()
    passes[:, :, SLOW] *= 1.5
    work = device_work(windows(passes), layout())
    assert [item.rank for item in work.found] == [SLOW] and work.compared == frozenset(range(8))
    finding = finding_of(work.found[0])
    assert (finding.cause, finding.stage.name, finding.confidence) == (
        Cause.COMPUTE_SLOW, StageName.UNKNOWN, Confidence.SUSPECT,
    )  # fmt: skip
    assert "ranks 4,6-7" in finding.evidence[0].statement and any(not each.supports for each in finding.evidence)


@pytest.mark.parametrize(("number", "name"), [(FORWARD, StageName.FORWARD), (BACKWARD, StageName.BACKWARD)])
def test_the_pass_that_is_longer_alone_is_named(number: int, name: StageName) -> None:
    passes = sound(steps=6)
    passes[number, :, SLOW] += 90 * MS
    (item,) = device_work(windows(passes), layout()).found
    assert item.stage is name and finding_of(item).confidence is Confidence.LIKELY


def longer_data(passes: Floats) -> None:
    """A replica has longer sequences, and its last stage, with the head, more to do with them."""
    passes[:, :, [1, SLOW]] *= 1.6
    passes[:, :, SLOW] *= 1.3


def bigger_stage(passes: Floats) -> None:
    """Who computes longer than its equals still computes less than the stage that everybody waits for."""
    passes[:, :, :4] *= 2
    passes[:, :, SLOW] *= 1.6


def once(passes: Floats) -> None:
    """A moment of one step."""
    passes[:, 1, SLOW] *= 3


def half_of_them(passes: Floats) -> None:
    """Boards of two kinds."""
    passes[:, :, [4, SLOW]] *= 1.5


def little(passes: Floats) -> None:
    """By less than boards may differ."""
    passes[:, :, SLOW] *= 1.1


def lost_steps(passes: Floats) -> None:
    """One step of a peer and another one of the rank are not in their traces: one alone is left."""
    passes[:, :, SLOW] *= 1.5
    passes[:, 0, 4] = passes[:, 2, SLOW] = np.nan


def unknown_mates(passes: Floats) -> None:
    """Nothing is known of the rest of its pipeline, whose data may be longer."""
    passes[:, :, SLOW] *= 1.5
    passes[:, :, 1] = np.nan


@pytest.mark.parametrize("happens", [longer_data, bigger_stage, once, half_of_them, little, lost_steps, unknown_mates])
def test_what_is_no_slow_device_names_nobody(happens: Callable[[Floats], None]) -> None:
    passes = sound()
    happens(passes)
    assert found(passes) == []


def test_a_sound_job_names_nobody() -> None:
    assert found(sound(steps=12)) == []


def test_without_others_on_the_same_data_nobody_is_compared() -> None:
    passes = sound()
    passes[:, :, SLOW] *= 1.5
    assert device_work(windows(passes), layout(pipelines=False)) == DeviceWork()


def test_who_has_no_trace_is_left_out_of_the_comparison() -> None:
    passes = sound()
    passes[:, :, SLOW] *= 1.5
    passes[:, :, 7] = np.nan
    work = device_work(windows(passes), layout())
    assert [(item.rank, item.peers) for item in work.found] == [(SLOW, (4, 6))] and 7 not in work.compared


def test_parts_of_a_sequence_are_compared_with_the_same_parts_of_others() -> None:
    """Under a causal mask the later of two parts is more work; of each there are two alone in a stage, and one may vary."""
    passes, known = sound(), layout()
    passes[:, :, [1, 3, 5, 7]] *= 1.8
    passes[:, :, SLOW] *= 1.4
    groups = {f"context {rank}": (rank, rank + 1) for rank in range(0, 8, 2)}
    axes, members = {**known.axes, **dict.fromkeys(groups, AxisOf(Axis.CONTEXT))}, {**known.members, **groups}
    places = {rank: Place(context=rank % 2) for rank in range(8)}
    assert device_work(windows(passes), replace(known, axes=axes, members=members, places=places)).found == ()


@pytest.mark.parametrize(("factor", "ranks"), [(1.4, []), (1.6, [SLOW])])
def test_of_two_equals_one_is_slow_by_much(factor: float, ranks: list[int]) -> None:
    """Other load only adds: it counts what each needs at least."""
    passes = sound()
    passes[:, :, [2, 3, 6, 7]] = np.nan
    passes[:, :, SLOW] *= factor
    passes[:, 0, SLOW] *= 1.5
    assert found(passes) == ranks


def test_experts_have_other_work() -> None:
    passes, known = sound(), layout()
    passes[:, :, SLOW] *= 1.5
    axes = {**known.axes, "experts": AxisOf(Axis.EXPERT)}
    assert found(passes, replace(known, axes=axes, members={**known.members, "experts": (0, 1)})) == []


def test_the_last_stage_is_no_equal_of_the_first() -> None:
    """The last stage has the head; of two of its ranks one left no trace, and one of three has more to do."""
    passes = sound()
    passes[:, :, [6, 7]] *= 1.5
    passes[:, :, [1, 2, 3, 4, 5, 7]] = np.nan
    passes[:, :, 1] = passes[:, :, 0]
    axes = {"data 0": AxisOf(Axis.DATA), "data 6": AxisOf(Axis.DATA), "tied 0": AxisOf(Axis.DATA), "tied 1": AxisOf(Axis.DATA)}
    members = {"data 0": (0, 1), "data 6": (6, 7), "tied 0": (0, 6), "tied 1": (1, 7)}
    pipes = {"pipe 0": (0, 6), "pipe 1": (1, 7)}
    known = Layout({**axes, **dict.fromkeys(pipes, AxisOf(Axis.PIPELINE))}, {**members, **pipes})
    assert found(passes, known) == []


def test_windows_that_can_be_cut_are_left_to_the_stages() -> None:
    passes = sound()
    passes[:, :, SLOW] *= 1.5
    assert device_work(windows(passes, messages=False), layout()) == DeviceWork()


def test_one_step_is_no_habit() -> None:
    passes = sound(steps=1)
    passes[:, :, SLOW] *= 1.5
    assert found(passes) == []


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "ranks"), [("gpu-throttled@rank5:250+before", [5]), ("none", [])])
def test_traces_alone_tell_the_layout_and_the_slow_device(fault: str, ranks: list[int], tmp_path: Path) -> None:
    made = simulate(DENSE, [parse(fault)] if fault != "none" else [], 3, iterations=8)
    with traced_case_of(made, tmp_path, steps=3) as connection:
        known = supply_of(connection).get(Layout)
        assert {known.axes[label].axis for label in known.axes} >= {Axis.TENSOR, Axis.PIPELINE, Axis.DATA}
        assert len(known.pipelines) == DENSE.parallel.tensor * DENSE.parallel.data
        verdict = diagnose(connection)
    assert [suspect.ranks for suspect in verdict.suspects] == [(rank,) for rank in ranks]
    assert all((suspect.cause, suspect.rules) == (Cause.COMPUTE_SLOW, ("FX170",)) for suspect in verdict.suspects)
