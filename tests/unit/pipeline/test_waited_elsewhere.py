"""Ranks that are late to ranks in step with them: by work of their own, or because a ring of theirs is slow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import Parallelism, TrainingJob
from forensics.fixtures.simulator.simulation import simulate
from forensics.model import Role
from forensics.rules.engine import run, supply_of
from forensics.rules.reductions.arrivals.lateness import Lateness, Latenesses
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.layout import AxisOf, Layout
from forensics.rules.reductions.pipeline.waited_elsewhere import arose_in_itself, waited_elsewhere
from forensics.rules.reductions.steps.times import StepTimes
from forensics.rules.slow import rank_late
from tests.unit.pipeline.simulated import case_of
from tests.unit.simulator.small_jobs import DENSE

JOB = replace(DENSE, parallel=Parallelism(tensor=4, pipeline=1, data=4))


def parts(job: TrainingJob, fault: str, folder: Path, tensor: bool = True) -> dict[int, float]:
    """Of ranks that cost most in their tensor-parallel group (or among replicas): the part that they waited elsewhere."""
    with case_of(simulate(job, [parse(fault)], 3, iterations=14), folder, timing=True) as connection:
        supply = supply_of(connection)
        times = supply.get(StepTimes)
        found = [each for each in supply.get(Latenesses).found if each.share >= 0.3]
    alike = [each for each in found if (each.members[-1] - each.members[0] == 3) == tensor]
    return {each.rank: waited_elsewhere(each, times) for each in alike}


def test_a_slow_ring_makes_each_of_its_members_late_to_those_in_step_with_it(tmp_path: Path) -> None:
    found = parts(replace(JOB, gradient_buckets=1, data_mode="zero1"), "nic-slow@rank6:10%", tmp_path)
    assert found.keys() == {2, 6, 10, 14} and min(found.values()) > 0.9


def test_who_works_longer_did_not_wait_elsewhere(tmp_path: Path) -> None:
    assert parts(JOB, "gpu-throttled@rank6:250", tmp_path)[6] < 0.05


def test_those_in_step_with_a_rank_that_works_longer_waited_for_it(tmp_path: Path) -> None:
    found = parts(JOB, "gpu-throttled@rank6:250", tmp_path, tensor=False)
    assert found.pop(6) == 0.0
    assert found.keys() == {4, 5, 7} and min(found.values()) > 0.8


def test_two_of_one_ring_that_work_longer_at_once_waited_for_nobody(tmp_path: Path) -> None:
    """The less slow one waits in the ring, beside computation, and those in step with it wait as long in theirs."""
    both = [parse("gpu-throttled@rank6:250"), parse("gpu-throttled@rank10:300")]
    with case_of(simulate(JOB, both, 3, iterations=14), tmp_path, timing=True) as connection:
        times, late = supply_of(connection).get(StepTimes), supply_of(connection).get(Latenesses)
    found = {each.rank: waited_elsewhere(each, times) for each in late.found if each.members[0] in (4, 8) and each.late > 9}
    assert found.keys() == {6, 10} and max(found.values()) < 0.05


@pytest.mark.parametrize("second", ["gpu-throttled@rank6:300", None], ids=["two are slow", "one is"])
def test_a_second_slow_rank_is_named_that_waits_for_the_first_one_by_messages(second: str | None, tmp_path: Path) -> None:
    """Rank 6 is of another stage and another replica than rank 1; all of its pipeline waits for both."""
    job = replace(DENSE, parallel=Parallelism(tensor=2, pipeline=2, data=4))
    faults = [parse(fault) for fault in ("gpu-throttled@rank1:200", second) if fault]
    with case_of(simulate(job, faults, 3, iterations=14), tmp_path, timing=True) as connection:
        found = run(supply_of(connection), [rank_late.RULE], {})[0]
    assert sorted(each.ranks for each in found if each.role is Role.ROOT) == [(1,), (6,)][: len(faults)]


def test_what_comes_once_a_pass_did_not_arise_in_the_rank_that_waits_for_it() -> None:
    late = Lateness(2, "tp", "all_reduce", (2, 3), 60, 60, 10**9, 0.3, 10**7, "2.fr", on_own_clocks=True)
    layout = Layout(axes={"tp": AxisOf(Axis.TENSOR), "dp": AxisOf(Axis.DATA)})
    times = StepTimes({}, np.empty(0, np.int64), np.empty(0))
    assert arose_in_itself(late, layout, times)
    assert not arose_in_itself(replace(late, late=30), layout, times)
    assert not arose_in_itself(replace(late, communicator="dp"), layout, times)
    assert not arose_in_itself(replace(late, calls=9, late=9), layout, times)
