"""An evaluation in which ranks were inside calls for long keeps the word `healthy` away, and what stands behind it does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forensics.rules.reductions.steps.long_evaluations import evaluation_signs
from forensics.rules.reductions.steps.records import UNKNOWN, Record, records
from forensics.rules.reductions.steps.times import Steps, StepTimes
from tests.unit.pipeline.made_up_calls import Call, case
from tests.unit.pipeline.test_steps_with_evaluation import EVALUATION, FORWARD, GROUPS, SAVED, STEP

EVERY, MS = 4, 1_000_000


def record_of(evaluation: list[Call], slow: int | None, slow_ms: int) -> Record:
    """Twenty steps, each fourth with an evaluation; in the one with the number `slow` a call takes so long."""
    program: list[Call] = []
    at: list[int] = []
    for number in range(20):
        program += STEP
        at += [len(program)] * (number % EVERY == EVERY - 1)
        program += evaluation * (number % EVERY == EVERY - 1)
    found = records(case(GROUPS, {0: program}))[0]
    durations = np.full(len(program), 10 * MS, np.int64)
    if slow is not None:
        durations[at[slow]] = slow_ms * MS
    return replace(found, duration_ns=durations)


def times_of(found: Record, step_ms: float = 900.0) -> StepTimes:
    none, length = np.arange(16), np.full(16, step_ms * MS)
    return StepTimes({0: Steps(found, none, none, np.zeros((16, 1), np.int32), length)}, none, length)


@pytest.mark.parametrize("evaluation", [EVALUATION, [FORWARD] * 3], ids=["with a call of its own", "without"])
@pytest.mark.parametrize(("slow", "slow_ms", "is_seen"), [(2, 5000, True), (2, 200, False), (None, 0, False)])
def test_a_long_evaluation_is_seen_by_times_inside_its_calls(
    evaluation: list[Call], slow: int | None, slow_ms: int, is_seen: bool
) -> None:
    assert bool([*evaluation_signs(times_of(record_of(evaluation, slow, slow_ms)))]) is is_seen


def test_evaluations_that_are_all_long_are_how_the_job_is() -> None:
    found = record_of(EVALUATION, None, 0)
    assert [*evaluation_signs(times_of(replace(found, duration_ns=np.full(len(found), 5000 * MS))))] == []


def test_a_save_is_no_evaluation_and_times_that_are_not_known_say_nothing() -> None:
    assert [*evaluation_signs(times_of(record_of([*EVALUATION, SAVED], 2, 5000)))] == []
    found = record_of(EVALUATION, 2, 5000)
    unknown = replace(found, duration_ns=np.full(len(found), UNKNOWN, np.int64))
    assert [*evaluation_signs(times_of(unknown))] == []
