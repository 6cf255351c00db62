"""The critical path of slow steps in verdicts, delays that bubbles take up, and where a hang came to a halt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import MS, Parallelism
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.model import Verdict
from forensics.rules.diagnosis import diagnose
from forensics.rules.reductions.pipeline.call_place import CallPlace
from forensics.rules.reductions.pipeline.critical_path import judged, longest
from forensics.rules.reductions.pipeline.delay import Delay, Delays
from forensics.rules.reductions.pipeline.on_path import absorbed, agreeing, on_path
from forensics.rules.reductions.pipeline.path_rows import critical_path_row
from forensics.rules.reductions.pipeline.schedules import Schedule, graph
from forensics.rules.reductions.pipeline.slow_steps import SlowStep, SlowSteps
from tests.unit.pipeline.made_up_iterations import as_long_as, made_iteration
from tests.unit.pipeline.simulated import case_of
from tests.unit.simulator.small_jobs import DENSE

JOB = replace(DENSE, parallel=Parallelism(tensor=2, pipeline=4, data=2), model=replace(DENSE.model, forward_ns=60 * MS))


def verdict(
    fault: str, folder: Path, *, timing: bool = True, iterations: int = 14, onset: int | None = None
) -> tuple[Verdict, Simulation]:
    made = simulate(JOB, [parse(fault)], 3, iterations=iterations, onset=onset)
    with case_of(made, folder, timing=timing) as connection:
        return diagnose(connection), made


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["compute-delay@rank6:900ms/backward", "compute-delay@rank13:700ms/forward"])
def test_the_late_pass_is_on_the_path_with_what_it_costs(fault: str, tmp_path: Path) -> None:
    found, made = verdict(fault, tmp_path)
    position, path = made.injections[0].position, found.critical_path
    assert path is not None and position is not None
    rank, delay_ns = int(fault.split("@rank")[1].split(":")[0]), int(fault.split(":")[1].split("ms")[0]) * MS
    (late,) = [row for row in path.nodes if row.is_late]
    assert (late.stage, late.direction, late.microbatch) == (
        JOB.parallel.stage_of(rank)[0],
        fault.rsplit("/")[-1],
        position.op.microbatch,
    )
    assert rank in late.ranks and late.slack_ns <= 1000
    assert abs(late.duration_ns - late.expected_ns - delay_ns) < 0.1 * delay_ns
    assert abs(path.recoverable_ns - delay_ns) < 0.15 * delay_ns
    impact = found.suspects[0].impact
    assert impact is not None and impact.method == "critical_path"
    assert impact.recoverable_ns == path.recoverable_ns
    assert [row.ranks for row in path.late_in] == [late.ranks]


def test_all_slow_steps_are_looked_at(tmp_path: Path) -> None:
    found, _ = verdict("gpu-throttled@rank6:250", tmp_path)
    path = found.critical_path
    assert path is not None and path.steps >= 2
    assert [(row.ranks, row.steps) for row in path.late_in] == [((6, 7), path.steps)]


def test_without_times_inside_calls_there_is_no_path_and_it_is_said(tmp_path: Path) -> None:
    found, _ = verdict("compute-delay@rank6:900ms/backward", tmp_path, timing=False)
    assert found.critical_path is None
    assert any("critical path" in line and "time inside calls" in line for line in found.not_checked)


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "rank"), [("host-hang@rank5/forward", 5), ("kernel-hang@rank9/backward", 9)])
def test_a_hang_has_the_pass_at_which_its_pipeline_halted(fault: str, rank: int, tmp_path: Path) -> None:
    found, made = verdict(fault, tmp_path, timing=False, iterations=5, onset=3)
    position = made.injections[0].position
    assert position is not None
    where = f"of microbatch {position.op.microbatch} on stage {JOB.parallel.stage_of(rank)[0]} "
    halts = halts_of(found)
    assert halts
    assert all(f"{fault.rsplit('/')[-1]} {where}" in statement for statement in halts)
    assert found.critical_path is None
    graph = found.incomplete_graph
    assert graph is not None and graph.of == len(graph.passes) and graph.complete < graph.of
    assert {(row.direction, row.microbatch, rank in row.ranks) for row in graph.halted} == {
        (fault.rsplit("/")[-1], position.op.microbatch, True)
    }


@pytest.mark.slow
def test_from_files_a_delay_within_its_slack_accuses_nobody(tmp_path: Path) -> None:
    """The first stage has forward passes to spare: one of them is late by less than its slack, in an otherwise sound job."""
    delay_ms, fault = 100, "compute-delay@rank0:100ms/forward"
    passes = graph(Schedule.ONE_F_ONE_B, JOB.parallel.pipeline, JOB.microbatches)
    slack = longest(passes.dag, np.where(passes.is_forward, 60.0 * MS, 120.0 * MS)).slack
    spare = {
        int(passes.microbatch[node])
        for node in np.flatnonzero((passes.stage == 0) & passes.is_forward & (slack > 1.3 * delay_ms * MS))
    }
    seeds = (seed for seed in range(3, 40) if struck(fault, seed) in spare)
    made = simulate(JOB, [parse(fault)], next(seeds), iterations=14)
    with case_of(made, tmp_path, timing=True) as connection:
        found = diagnose(connection)
    assert found.suspects == ()


def struck(fault: str, seed: int) -> int | None:
    position = simulate(JOB, [parse(fault)], seed, iterations=4).injections[0].position
    return position.op.microbatch if position else None


def halts_of(found: Verdict) -> list[str]:
    return [item.statement for suspect in found.suspects for item in suspect.evidence if "halted" in item.statement]


def test_nothing_is_said_of_passes_where_no_whole_step_came_before_the_hang(tmp_path: Path) -> None:
    found, _ = verdict("host-hang@rank5/forward", tmp_path, timing=False, iterations=4, onset=1)
    assert found.suspects[0].ranks == (5,)
    assert halts_of(found) == []


def slow_step(extra: dict[int, float]) -> SlowStep:
    """A step of a pipeline of 4 stages and 8 microbatches, some of whose passes took longer by so many ns."""
    made = made_iteration(Schedule.ONE_F_ONE_B, 4, 8)
    expected = as_long_as(made, 40e6, 80e6)
    took = expected.copy()
    for node, delay in extra.items():
        took[node] += delay
    lags = np.zeros(len(made.graph.source))
    result = judged(made.graph, took, expected, lags=lags)
    usual = longest(made.graph, expected, lags).makespan
    return SlowStep(5, (made,), np.zeros(1, np.int64), made.graph, took, expected, lags, result, usual)


@dataclass(frozen=True, slots=True)
class Places:
    """Says of every call that it is of one pass."""

    place: CallPlace

    def of_call(self, rank: int, communicator: str, sequence: int) -> CallPlace:
        return self.place


def delay_of(rank: int) -> Delay:
    return Delay(5, 500e6, (rank,), "pp", 7, "send", 0, (0, 0), 400e6)


def shown_by(*found: Delay) -> Delays:
    """What the calls tell of ten steps of ranks 0 to 3."""
    return Delays(found, 10, 9, 1e9, 0, frozenset(range(4)), frozenset(range(4)))


@pytest.mark.parametrize(
    ("found", "is_shown"),
    [
        ((), True),
        ((delay_of(2),), True),
        ((delay_of(1),), False),
        ((delay_of(1), delay_of(2)), True),
        ((replace(delay_of(1), step=6),), True),
    ],
    ids=["nothing known", "the same rank", "another rank", "both", "another step"],
)
def test_a_path_whose_late_passes_are_of_other_ranks_than_the_calls_wait_for_is_left_out(
    found: tuple[Delay, ...], is_shown: bool
) -> None:
    node = int(np.flatnonzero(slow_step({}).parts[0].stage == 2)[3])
    slow = SlowSteps((slow_step({node: 500e6}),), 1, 1)
    assert (critical_path_row(slow, shown_by(*found)) is not None) is is_shown
    assert bool(agreeing(slow, shown_by(*found)).found) is is_shown


def test_a_delay_that_its_slack_takes_up_is_distinguished_from_one_that_costs() -> None:
    whole = slow_step({})
    slack = longest(whole.graph, whole.expected, whole.lags).slack
    part = whole.parts[0]
    spare = int(slack.argmax())
    late = int(np.flatnonzero((part.stage == 3) & (part.microbatch == 4))[0])
    step = slow_step({spare: float(slack[spare]) - 20e6, late: 500e6})
    slow = SlowSteps((step,), 1, 1)
    for node, is_absorbed in ((spare, True), (late, False)):
        way = "forward" if step.parts[0].direction[node] > 0 else "backward"
        place = CallPlace(way, int(part.microbatch[node]), None, int(part.stage[node]), in_pass=True)
        found = on_path([delay_of(int(part.stage[node]))], Places(place), slow)  # type: ignore[arg-type]
        assert found.is_absorbed is is_absorbed
        assert (found.recoverable_ns > 0) is not is_absorbed
    assert [f"stage {part.stage[spare]}" in item.statement for item in absorbed(step)] == [True]
    row = critical_path_row(slow, shown_by())
    assert row is not None and [each.microbatch for each in row.absorbed] == [int(part.microbatch[spare])]
    assert row.recoverable_ns == 500_000_000
    assert {each.clock for each in row.nodes} == {"kernel"}
    met = critical_path_row(SlowSteps((replace(step, by_arrivals=frozenset(step.ranks(late))),), 1, 1), shown_by())
    assert met is not None
    assert {each.ranks for each in met.nodes if each.clock == "arrivals"} == {step.ranks(late)}


@pytest.mark.parametrize(
    ("extra_ms", "changes", "shown"),
    [
        (160, {}, True),
        (30, {}, False),
        (160, {"is_spread": False}, False),
        (160, {"on_host": True}, False),
        (160, {"on_host": None}, False),
        (160, {"excess_ns": 900e6}, False),
    ],
    ids=["twice as long", "other samples", "at once", "its host", "not known whose", "a small part"],
)
def test_a_device_that_is_behind_call_after_call_of_one_pass(extra_ms: float, changes: dict[str, object], shown: bool) -> None:
    """A single step that is longer by little may be a host that allocates memory, but for that."""
    part = slow_step({}).parts[0]
    node = int(np.flatnonzero((part.stage == 1) & (part.microbatch == 4))[0])
    delay = replace(delay_of(1), is_spread=True, on_host=False, excess_ns=extra_ms * 1e6)
    delay = replace(delay, **changes)  # type: ignore[arg-type]
    place = CallPlace("forward", 4, None, 1, in_pass=True)
    found = on_path([delay], Places(place), SlowSteps((slow_step({node: extra_ms * 1e6}),), 1, 1))  # type: ignore[arg-type]
    assert found.shows_device(delay) is shown
