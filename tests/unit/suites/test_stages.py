"""Rules that rank stages: the sums by hand, and the simulated rows of StageFrontier's table 4 against the published ones."""

from __future__ import annotations

import numpy as np
import pytest

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.simulation import simulate
from forensics.fixtures.suites import accumulation, frontier, sharding
from forensics.fixtures.suites.baselines import stages
from forensics.fixtures.suites.interface import Case
from forensics.fixtures.suites.matrix import STAGES, StageTimes, stage_times
from forensics.fixtures.suites.preparing import simulated

# One step of two ranks: the first is late with its data, the second waits for it in the backward pass.
LATE = np.array([[[6.0, 1.0, 2.0, 0.0, 0.0], [1.0, 1.0, 7.0, 0.0, 0.0]]])


def test_advances_of_the_frontier_add_up_to_the_step() -> None:
    assert stages.frontier(LATE).tolist() == [6.0, 1.0, 2.0, 0.0, 0.0]


def test_other_rules_count_the_wait_too() -> None:
    assert stages.largest(LATE).tolist() == [6.0, 1.0, 7.0, 0.0, 0.0]
    assert stages.average(LATE).tolist() == [3.5, 1.0, 4.5, 0.0, 0.0]
    assert stages.rank_zero(LATE).tolist() == [6.0, 1.0, 2.0, 0.0, 0.0]
    assert stages.slowest(LATE).tolist() == [6.0, 1.0, 2.0, 0.0, 0.0]
    assert stages.spread(LATE)[0] == 2.5


def test_the_candidate_set_is_the_head_that_holds_most() -> None:
    found = stages.routing(np.array([50.0, 5.0, 40.0, 5.0, 0.0]), "backward")
    assert found.ranking[:2] == ("data", "backward")
    assert (found.size, found.top1, found.top2, found.hit) == (2, False, True, True)


@pytest.mark.parametrize(("size", "published_ms"), [(8, 207.0), (32, 235.0)])
def test_a_step_without_a_fault_takes_about_the_published_time(size: int, published_ms: float) -> None:
    made = simulate(frontier.job(size), [parse("none")], 1, iterations=12)
    steps = np.diff(made.run.ends.max(axis=1)) / 1e6
    assert np.median(steps) == pytest.approx(published_ms, rel=0.05)


@pytest.mark.parametrize(("level", "published", "tolerance"), [(12, 0.06, 0.03), (120, 0.43, 0.08)])
def test_a_late_batch_gets_about_the_published_share(level: int, published: float, tolerance: float) -> None:
    made = simulate(frontier.job(8), [parse(f"frontier-data@random:{level}ms")], 3, iterations=40)
    found = stages.routings(stage_times(made))["frontier"]
    assert found.shares[found.ranking.index("data")] == pytest.approx(published, abs=tolerance)


def test_rules_land_near_their_published_values() -> None:
    made = [
        simulate(frontier.job(8), [parse(f"frontier-{name}@random:120ms")], 5, iterations=40) for name in frontier.SCENARIOS
    ]
    found = [stages.routings(stage_times(one)) for one in made]
    assert {one.ranking[0] for each in found for one in each.values()} <= set(STAGES)
    first = {name: sum(each[name].top1 for each in found) / len(found) for name in stages.METHODS}
    second = {name: sum(each[name].top2 for each in found) / len(found) for name in stages.METHODS}
    assert (first["frontier"], second["frontier"]) == (0.8, 1.0)
    assert (first["per-stage max"], second["per-stage max"]) == (0.4, 1.0)
    assert (first["per-stage average"], second["per-stage average"]) == (0.4, 0.8)
    assert (first["slowest rank"], second["slowest rank"]) == (0.4, 0.8)


def test_substages_add_up_after_the_frontier_is_taken() -> None:
    """Of two microbatches each rank is late in one: taken together they would hide each other."""
    columns = ("forward", "backward", "forward", "backward")
    times = StageTimes(np.array([[[3.0, 1.0, 1.0, 3.0], [1.0, 3.0, 3.0, 1.0]]]), "forward", (0,), columns)
    found = stages.routings(times)["frontier"]
    assert dict(zip(found.ranking, found.shares, strict=True))["forward"] == pytest.approx(6 / 8)


def test_accumulation_has_each_pass_of_each_part() -> None:
    drawn, made = simulated(Case("accumulation", 1, 0))
    found = stage_times(made)
    assert drawn.job.microbatches == accumulation.FACTOR
    assert found.columns == ("data", *("forward", "backward") * accumulation.FACTOR, "optimizer", "callbacks")


def test_rows_of_e7_are_routed_as_published() -> None:
    for number, name in enumerate(accumulation.SCENARIOS):
        _, made = simulated(Case("accumulation", 2, number))
        found = stages.routings(stage_times(made))["frontier"]
        assert found.top2
        assert found.top1 == (name != "forward-device")


@pytest.mark.slow
def test_rows_of_e8_are_routed_and_a_late_host_that_nobody_waits_for_is_not() -> None:
    for number, cell in enumerate(sharding.CELLS[: len(sharding.SCENARIOS) + 1]):
        drawn, made = simulated(Case("sharding", 2, number))
        found = stages.routings(stage_times(made))["frontier"]
        assert drawn.about == cell[-1]
        assert (found.top1, found.top2) == ((False, False) if drawn.about == sharding.CONTROL else (True, True))


def test_e8_has_as_many_rows_as_published() -> None:
    """But for those of which evidence was lost, which the paper did not try."""
    drawn = [sharding.draw(np.random.default_rng(number), number) for number in range(len(sharding.CELLS))]
    assert (sum(one.about != sharding.CONTROL for one in drawn), len(drawn)) == (90, 108)
    assert all(one.as_published is (one.about != sharding.CONTROL and not one.losses) for one in drawn)
    assert 0 < sum(bool(one.losses) for one in drawn) < len(drawn) / 2
