"""Where steps begin in jobs that save every few steps behind a barrier, and which steps are compared."""

from __future__ import annotations

import numpy as np
import pytest

from forensics.case.database import Connection
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.steps.begins import step_begins
from forensics.rules.reductions.steps.records import Record, Recorded, records
from forensics.rules.reductions.steps.times import StepTimes, step_times
from tests.unit.pipeline.made_up_calls import Call, case

GROUPS = {"all": (0, 1, 2, 3), "pair": (0, 1)}
STEP = [Call("pair", "all_reduce"), Call("pair", "all_reduce"), Call("all", "all_reduce", 1)]
SAVES = [Call("all", "all_reduce_barrier", 1)]
EVERY, STEPS = 3, 9
LENGTH_NS, SAVING_NS = 1_000_000_000, 700_000_000


def job(every: int) -> Connection:
    program = [call for step in range(STEPS) for call in (*STEP, *(SAVES if step % every == every - 1 else ()))]
    return case(GROUPS, dict.fromkeys(range(4), program))


def timed(connection: Connection) -> dict[int, Record]:
    """Each call a third of a step after the one before; the barrier comes when the job has saved."""
    connection.execute(
        "UPDATE operations SET sequence = locator, enqueued_ns = at_ns FROM (SELECT rank AS of, locator AS which, "
        f"sum(CASE WHEN kind LIKE '%barrier' THEN {SAVING_NS} ELSE {LENGTH_NS} // 3 END) "
        "OVER (PARTITION BY rank ORDER BY locator) AS at_ns FROM operations) WHERE rank = of AND locator = which"
    )
    return dict(records(connection))


def test_a_barrier_every_few_steps_makes_no_step() -> None:
    record = records(job(EVERY))[0]
    lengths = np.diff(step_begins(record))
    assert set(lengths.tolist()) == {len(STEP), len(STEP) + 1}
    assert len(step_begins(record)) == STEPS


@pytest.mark.parametrize("closing", ["all_reduce_barrier", "all_reduce"])
def test_what_everybody_calls_once_a_step_marks_it(closing: str) -> None:
    """A barrier is as good as any where it comes in each step, and so is a reduction behind microbatches of alike calls."""
    program = [*[Call("pair", "all_reduce")] * 4, Call("all", closing, 1)] * STEPS
    record = records(case(GROUPS, dict.fromkeys(range(4), program)))[0]
    assert set(np.diff(step_begins(record)).tolist()) == {5}


@pytest.mark.parametrize("made", [0, 1])
def test_a_step_behind_a_barrier_goes_on_as_those_before(made: int) -> None:
    program = [*STEP * STEPS, *SAVES, *STEP[:made]]
    connection = case(GROUPS, dict.fromkeys(range(4), program))
    following = CallPlaces(connection, Recorded(connection)).of_next(0)
    assert following is not None
    assert following.opens == (made == 0)


def test_steps_in_which_the_job_saved_are_not_compared() -> None:
    times = step_times(timed(job(EVERY)))
    assert len(times.number)
    assert times.long() == []
    assert np.ptp(times.length) == 0


def test_a_step_that_only_a_cut_record_shows_does_not_tell_what_is_usual() -> None:
    connection = job(STEPS + 1)
    found = timed(connection)
    whole = step_times(found)
    connection.execute("DELETE FROM operations WHERE rank > 0 AND locator < 9")
    connection.execute("UPDATE operations SET enqueued_ns = enqueued_ns + 900000000 WHERE rank = 0 AND locator < 6")
    cut = step_times(dict(records(connection)))
    assert cut.number.tolist() == whole.number.tolist()[2:]
    assert np.ptp(cut.length) == 0


def test_steps_in_which_a_job_warms_up_are_not_judged() -> None:
    """From its start on: amid a job they are as long as any."""
    length = np.array([3.0, 2.0, 1.3, *[1.0] * 20, 1.5, 1.0]) * LENGTH_NS
    number = np.arange(1, len(length) + 1)
    assert [step for step, _ in StepTimes({}, number, length, from_start=True).long()] == [24]
    assert [step for step, _ in StepTimes({}, number, length).long()] == [1, 2, 3, 24]


def long_steps(*length: int) -> list[int]:
    times = StepTimes({}, np.arange(len(length)), np.array(length, float))
    return [step for step, _ in times.long()]


def test_steps_of_many_lengths_have_no_long_ones_among_them() -> None:
    """Sequences of other lengths in each microbatch: that shorter ones lie close together does not set the next ones apart."""
    steps = (3433, 2495, 2886, 2384, 3071, 2365, 4922, 2611, 2641, 2887, 3527, 2818, 3089, 3642, 2716, 3151, 2554, 2631, 3042)
    assert long_steps(*steps) == []


def test_a_longest_step_is_one_of_many_lengths_where_others_are_neither_usual_nor_apart() -> None:
    assert long_steps(1184, 1284, 1429, 1383, 1365, 1436, 1455, 1737, 1636, 1606) == []
    assert long_steps(1184, 1284, 1429, 1383, 1365, 1436, 1455, 1737, 1436, 1406) == [7]


def test_steps_of_two_lengths_stand_apart_also_beside_a_longer_one() -> None:
    steps = [150 if step % 3 == 2 else 100 + step % 2 for step in range(18)]
    assert long_steps(*steps) == [2, 5, 8, 11, 14, 17]
    assert {2, 5, 8, 11, 14, 17} <= set(long_steps(*steps, 300))


def test_a_step_near_the_gate_is_long_where_steps_differ_by_that_much() -> None:
    """The same step might have been as short as the shorter ones: a tenth more than those is past the gate."""
    assert long_steps(*[1000, 1012, 1000] * 6, 1106, *[1000, 1012, 1000] * 4) == [18]
    assert long_steps(*[1000, 1002, 1000] * 6, 1106, *[1000, 1002, 1000] * 4) == []
    assert long_steps(1092, 1155, 1062) == []
    assert long_steps(*[1000, 1012, 1000] * 6, 1085, *[1000, 1012, 1000] * 4) == []
