"""Steps of jobs whose rarest call is one of an evaluation every few steps, and of those that end each step with one."""

from __future__ import annotations

import numpy as np
import pytest

from forensics.rules.reductions.steps.begins import step_begins
from forensics.rules.reductions.steps.records import records
from tests.unit.pipeline.made_up_calls import Call, case

GROUPS = {"all": (0, 1, 2, 3), "tp": (0, 1)}
FORWARD, BACKWARD = Call("tp", "_all_gather_base"), Call("tp", "_reduce_scatter_base")
GRADIENTS, NORM, SCORE = Call("all", "_reduce_scatter_base", 64), Call("all", "all_reduce", 1), Call("all", "all_reduce", 2)
PARAMETERS = Call("all", "_all_gather_base", 64)
STEP = [*[FORWARD] * 4, *[BACKWARD] * 4, GRADIENTS, NORM, PARAMETERS]
EVALUATION = [*[FORWARD] * 3, SCORE]
SAVED = Call("all", "barrier", 1)
STEPS = 25


def pieces(program: list[Call]) -> list[int]:
    """How many calls lie between the begins of steps of rank 0."""
    return list(np.diff(step_begins(records(case(GROUPS, {0: program}))[0])).tolist())


@pytest.mark.parametrize("every", [2, 3, 6])
@pytest.mark.parametrize("cut", [0, 3])
def test_evaluation_stands_between_steps_that_are_alike(every: int, cut: int) -> None:
    program = [call for number in range(STEPS) for call in (*STEP, *(EVALUATION if number % every == every - 1 else ()))]
    found = pieces(program[cut:])
    assert set(found) == {len(STEP), len(EVALUATION)}
    assert found.count(len(EVALUATION)) == STEPS // every


@pytest.mark.parametrize("every", [3, 5])
@pytest.mark.parametrize("saves", [0, 4])
@pytest.mark.parametrize("cut", [0, 3, len(STEP) - 1])
def test_an_evaluation_without_a_call_of_its_own_stands_between_steps_too(every: int, saves: int, cut: int) -> None:
    program: list[Call] = []
    for number in range(STEPS):
        program += STEP + [SAVED] * (saves > 0 and number % saves == saves - 1) + [FORWARD] * 3 * (number % every == every - 1)
    found = pieces(program[cut:])
    assert {*found} <= {len(STEP), len(STEP) + 1, 3, 4}
    assert sum(length <= 4 for length in found) == STEPS // every - (STEPS % every == 0)


@pytest.mark.parametrize("larger", [1, 6])
def test_larger_batches_from_a_step_on_are_no_evaluations(larger: int) -> None:
    sizes = [4] * 9 + [5] * larger
    assert {*pieces([call for size in sizes for call in grown(size, [GRADIENTS, NORM])])} == {18, 22}


def test_what_else_is_done_now_and_then_is_no_evaluation() -> None:
    """Each time other calls: nothing is cut that is not known."""
    extra = {4: [FORWARD], 9: [FORWARD] * 3, 14: [FORWARD] * 2}
    program = [call for number in range(STEPS) for call in (*STEP, *extra.get(number, ()))]
    assert {*pieces(program)} == {len(STEP), len(STEP) + 1, len(STEP) + 2, len(STEP) + 3}


RAMP = (1, 2, 2, 3, 3, 3)


def grown(microbatches: int, closing: list[Call]) -> list[Call]:
    """A step of so many microbatches."""
    return [*([FORWARD] * 2 + [BACKWARD] * 2) * microbatches, *closing]


def test_steps_before_evaluations_may_have_a_batch_that_grows() -> None:
    sizes = [*RAMP, *[4] * 12]
    step = [grown(size, [GRADIENTS, NORM, PARAMETERS]) for size in sizes]
    program = [call for number, calls in enumerate(step) for call in (*calls, *(EVALUATION if number % 4 == 3 else ()))]
    found = pieces(program)
    assert found.count(len(step[-1])) >= 11 and found.count(len(EVALUATION)) == 3


def test_steps_that_shrink_and_grow_are_not_those_between_evaluations() -> None:
    """No batch does that: these are parts of a longer step, which the rarest call ends."""
    sizes = [4, 2, 3, 4, 4, 4]
    program = [call for _ in range(4) for size in sizes for call in grown(size, [GRADIENTS, NORM])]
    longer = len(program) // 4
    program = [call for start in range(0, len(program), longer) for call in (*program[start : start + longer], *EVALUATION)]
    assert set(pieces(program)) == {longer + len(EVALUATION)}


def test_microbatches_of_a_batch_that_grows_are_no_steps() -> None:
    closing = [*[FORWARD] * 2, *[BACKWARD] * 2, SCORE]
    program = [call for size in (*RAMP, *[4] * 12) for call in (*closing * size, GRADIENTS, NORM)]
    assert set(pieces(program)) >= {len(closing) * 4 + 2} and min(pieces(program)) > len(closing)


REST = [*[FORWARD] * 2, *[BACKWARD] * 2, GRADIENTS, NORM, PARAMETERS]


@pytest.mark.parametrize(("ends", "whole", "apart"), [(16, 23, 6), (7, 22, 5)], ids=["apart from it", "once right behind it"])
def test_rests_of_epochs_hide_no_evaluation(ends: int, whole: int, apart: int) -> None:
    """The last batch of an epoch has fewer microbatches; an evaluation before one is left with it."""
    program: list[Call] = []
    for number in range(STEPS):
        program += (REST if number % ends == ends - 1 else STEP) + EVALUATION * (number % 4 == 3)
    found = pieces(program)
    assert (found.count(len(STEP)), found.count(len(EVALUATION))) == (whole, apart)


def test_steps_of_which_most_are_rests_are_not_cut_at_evaluations() -> None:
    program = [call for number in range(STEPS) for call in (*(STEP if number % 2 else REST), *EVALUATION * (number % 4 == 3))]
    assert min(pieces(program)) > len(STEP)


@pytest.mark.parametrize("saves", [3, 5])
def test_saves_in_other_steps_hide_no_evaluation(saves: int) -> None:
    """A save has a barrier, behind any step."""
    program: list[Call] = []
    for number in range(STEPS):
        program += STEP + [SAVED] * (number % saves == saves - 1) + EVALUATION * (number % 6 == 5)
    found = [length for length in pieces(program) if length >= len(EVALUATION)]
    assert {*found} <= {len(STEP), len(STEP) + 1, len(EVALUATION), len(EVALUATION) + 1}
    assert sum(length <= len(EVALUATION) + 1 for length in found) == STEPS // 6


@pytest.mark.parametrize("closing", [[NORM], [NORM, PARAMETERS], [GRADIENTS, NORM]], ids=["norm", "parameters", "gradients"])
def test_microbatches_are_no_steps(closing: list[Call]) -> None:
    """The loss of each is reduced over all ranks, and something at the end of the step."""
    step = [*[*[FORWARD] * 2, *[BACKWARD] * 2, SCORE] * 4, *closing]
    assert set(pieces(step * 9)) == {len(step)}


def test_what_makes_all_calls_of_a_step_may_be_the_end_of_a_longer_one() -> None:
    program = [call for number in range(STEPS) for call in (*STEP, *([*STEP, SCORE] if number % 5 == 4 else ()))]
    assert set(pieces(program)) == {6 * len(STEP) + 1}


def test_layers_of_a_sharded_job_are_no_steps_between_evaluations() -> None:
    """The loss ends each step; what recurs next least often are the gradients of its layers."""
    gather, scatter = Call("all", "_all_gather_base", 64), Call("all", "_reduce_scatter_base", 64)
    step = [*[gather] * 8, *[gather, scatter] * 8, NORM]
    assert set(pieces(step * 6)) == {len(step)}
