"""What recorded stages tell against a sound job: a short begin of the record, stages that keep all ranks from training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forensics.rules.reductions.frontier.matrix import StageMatrix
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.frontier.verdicts import FrontierWindow
from forensics.rules.stage_signs import stage_signs
from tests.unit.frontier.jobs import job

ALL = slice(None)


def signs_of(made: StageMatrix) -> list[str]:
    return list(stage_signs(FrontierWindows((FrontierWindow(made),))))


def slow_from(step: int, first: int = 500, steps: int = 45, delay_ms: float = 120) -> StageMatrix:
    made = job("backward", steps=steps, who=lambda _: ALL, when=lambda number: number >= step, delay_ms=delay_ms)
    return replace(made, steps=made.steps + first)


@pytest.mark.parametrize(
    ("made", "begin"),
    [
        (slow_from(1), "the first step of the record took"),
        (slow_from(2), "the first 2 steps of the record took"),
        (slow_from(0), None),
        (slow_from(3), None),
        (slow_from(2, first=0), None),
        (slow_from(2, delay_ms=12), None),
        (slow_from(2, steps=8), None),
    ],
    ids=["one", "two", "none", "enough to date it", "a job that begins", "by a trifle", "few behind"],
)
def test_one_or_two_steps_that_are_shorter_than_all_others_speak_against_a_sound_job(
    made: StageMatrix, begin: str | None
) -> None:
    found = signs_of(made)
    assert [sign.startswith(begin or "-") for sign in found] == [True] * (begin is not None)


@pytest.mark.parametrize(
    ("stage", "who", "delay_ms", "is_sign"),
    [
        ("data", ALL, 120, True),
        ("callbacks", ALL, 120, True),
        ("data", ALL, 40, False),
        ("data", 3, 120, False),
        ("optimizer", ALL, 120, False),
    ],
    ids=["data", "callbacks", "a sixth", "on one rank", "work"],
)
def test_stages_beside_training_do_that_are_long_on_all_ranks(
    stage: str, who: int | slice, delay_ms: float, is_sign: bool
) -> None:
    found = signs_of(job(stage, steps=20, who=lambda _: who, delay_ms=delay_ms))
    assert [f" of a step in {stage}, and whether that is usual is not known" in sign for sign in found] == [True] * is_sign


def test_an_evaluation_now_and_then_does_not() -> None:
    made = job("callbacks", steps=20, who=lambda _: ALL, when=lambda step: step % 5 == 4, delay_ms=2000)
    assert signs_of(made) == []
    assert signs_of(replace(made, walls=np.zeros_like(made.walls))) == []
