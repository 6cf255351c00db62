"""When faults begin and end, and when jobs are looked at: drawn from the seed, alike for jobs that stop and jobs that move."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from forensics.errors import ForensicsError
from forensics.fixtures.simulator.course import COURSES, Course, draw_course, draw_name
from forensics.fixtures.simulator.faults import FAULTS, parse
from forensics.fixtures.simulator.job import S
from forensics.fixtures.simulator.losses import Losses
from forensics.fixtures.simulator.planning import Plan, plan
from forensics.fixtures.simulator.presets import PRESETS
from forensics.fixtures.simulator.simulation import Simulation, degraded, makespans, simulate
from forensics.fixtures.simulator.truth import truth
from tests.unit.simulator.small_jobs import DENSE, quiet

JOB = replace(quiet(DENSE), microbatches=1)


@cache
def case(fault: str, seed: int = 2, job: str = "") -> Simulation:
    return simulate(PRESETS[job] if job else JOB, [parse(fault)], seed, after_s=9.0)


def slower(made: Simulation) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Which iterations the fault made longer by more than a hundredth."""
    return makespans(made.run) > 1.01 * makespans(made.reference)


def plans(fault: str, seeds: int = 60) -> list[Plan]:
    return [plan(JOB, [parse(fault)], np.random.default_rng(seed)) for seed in range(seeds)]


def test_a_fault_from_before_the_run_is_felt_from_the_first_step_on() -> None:
    made = case("gpu-throttled@rank3:200+before")
    assert slower(made).all() and truth(made, Losses())["faults"][0]["step"] == made.first_step + 1


def test_a_lasting_fault_begins_inside_an_iteration() -> None:
    made = case("gpu-throttled@rank3:200+lasting")
    found, ends = slower(made), made.reference.ends.max(axis=1)
    first = int(found.argmax())
    assert not found[:first].any() and found[first + 1 :].all()
    assert ends[first - 1] < made.injections[0].onset_ns < ends[first]


def test_a_fault_that_recovers_is_gone_at_the_collection_and_the_job_was_slow() -> None:
    made = case("gpu-throttled@rank3:200+recovering")
    (fault,) = truth(made, Losses())["faults"]
    assert fault["onset_ns"] < fault["end_ns"] < truth(made, Losses())["capture_ns"]
    assert degraded(made) and not slower(made)[-10:].any()
    assert not any(effect.holds(made.capture_ns) for effect in made.effects)


def test_an_intermittent_fault_comes_back() -> None:
    course = Course("intermittent", 10 * S, period_ns=30 * S, burst_ns=2 * S)
    at = np.array([9.0, 10.5, 13.0, 41.0, 43.0]) * S
    assert course.strength(at).tolist() == [0, 1, 0, 1, 0]
    made = case("intermittent@rank3:1500", job="gpipe-small")
    found = truth(made, Losses())["faults"][0]
    assert found["course"]["period_ns"] >= 15 * S and found["course"]["burst_ns"] == 1_500_000_000 and found["end_ns"] is None
    assert slower(made).any() and not slower(made).all()


def test_a_growing_fault_costs_more_and_more() -> None:
    made = case("gpu-throttled@rank3:200+growing")
    cost = (makespans(made.run) / makespans(made.reference))[made.injections[0].iteration + 1 :]
    whole = int(made.injections[0].course.ramp_ns / S / 0.1) if made.injections[0].course else 0
    assert whole > 10 and np.all(np.diff(cost[: min(whole, 20)]) > -1e-3) and cost[5] < cost[20]


def test_every_course_is_drawn_where_none_is_asked_for() -> None:
    names = [draw_name(np.random.default_rng(seed)) for seed in range(100)]
    assert {*names} == {*COURSES} and all(names.count(name) > 4 for name in COURSES)


@pytest.mark.parametrize("name", COURSES)
def test_a_course_begins_when_it_is_stated_to(name: str) -> None:
    course = draw_course(name, 5 * S, 40 * S, np.random.default_rng(1))
    assert not course.holds(4.9 * S) or name == "before"
    assert course.holds(5.3 * S)
    assert not course.strength(np.array([np.inf])).any()


def test_jobs_that_stop_and_jobs_that_move_wait_alike_for_their_collection() -> None:
    waits = [[found.wait_s for found in plans(fault)] for fault in ("host-hang", "gpu-throttled", "none")]
    assert waits[0] == waits[1] == waits[2]
    assert min(waits[0]) < 12 and max(waits[0]) > 80


def test_the_wait_is_kept() -> None:
    for fault in ("gpu-throttled@rank3+lasting", "host-hang@rank3"):
        made = case(fault)
        begun = made.stall_ns if made.hung else made.injections[0].onset_ns
        assert made.capture_ns - begun == pytest.approx(9 * S, rel=1e-6)


def test_some_jobs_hang_in_their_first_iterations() -> None:
    found = plans("host-hang")
    usual = max(each.onset for each in found)
    assert 5 < sum(each.onset < usual for each in found) < 30
    assert all(each.young for each in found if each.onset < usual)


@pytest.mark.slow
def test_a_delay_may_be_in_progress_when_somebody_looks() -> None:
    made = case("compute-delay@rank3:30s")
    found = truth(made, Losses())
    assert found["outcome"] == "slowdown" and found["accepted_outcomes"] == ["slowdown", "hang"]
    assert found["makespan_ns"]["observed"][-1] is None
    assert found["faults"][0]["onset_ns"] < found["capture_ns"] < found["faults"][0]["end_ns"]
    later = simulate(JOB, [parse("compute-delay@rank3:3s")], 2, after_s=9.0)
    assert truth(later, Losses())["accepted_outcomes"] == ["slowdown"]


def test_what_happens_after_the_collection_does_not_count() -> None:
    made = case("gpu-throttled@rank3:200+lasting")
    assert degraded(made)
    assert not degraded(replace(made, capture_ns=made.injections[0].onset_ns - 1.0))


@pytest.mark.parametrize("onset", [-1, 6, 60])
def test_an_onset_after_the_end_is_refused(onset: int) -> None:
    for fault in ("host-hang@rank3", "gpu-throttled@rank3"):
        with pytest.raises(ForensicsError, match="over before"):
            simulate(JOB, [parse(fault)], 1, iterations=6, onset=onset)


@pytest.mark.parametrize("text", ["host-hang@rank3+recovering", "nic-slow@rank3+soon", "intermittent+growing"])
def test_a_course_that_a_kind_cannot_have_is_refused(text: str) -> None:
    with pytest.raises(ForensicsError, match="takes no course"):
        parse(text)


def test_kinds_that_last_take_every_course() -> None:
    lasting = [name for name, kind in FAULTS.items() if len(kind.courses) > 1]
    assert len(lasting) >= 14 and all(parse(f"{name}+{course}").course == course for name in lasting for course in COURSES)


@pytest.mark.parametrize("every", [0, 4, 6], ids=["never", "in other steps", "in that step"])
def test_a_checkpoint_that_stalls_is_written_in_the_step_of_the_fault(every: int) -> None:
    made = simulate(replace(JOB, checkpoint_every=every), [parse("checkpoint-stall@rank3")], 2, onset=5)
    assert made.job.checkpoint_every == 6
    assert truth(made, Losses())["faults"][0]["stage"]["name"] == "checkpoint"
