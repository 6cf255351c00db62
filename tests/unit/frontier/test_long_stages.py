"""The stage that a rank which comes late to calls is long in, by its recorded stages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forensics.rules.reductions.frontier.long_stages import is_early_in_time, is_late_before, long_stage_of
from forensics.rules.reductions.frontier.verdicts import FrontierWindow
from forensics.rules.reductions.frontier.waits import Waiting
from tests.unit.frontier.jobs import MS, job, judged


@pytest.mark.parametrize("stage", ["data", "forward", "callbacks", "optimizer"])
def test_the_stage_of_the_rank_that_is_long(stage: str) -> None:
    found = long_stage_of(3, [FrontierWindow(job(rank=1)), FrontierWindow(job(stage, rank=3, seed=2))])
    assert found is not None and found.stage == stage


def test_the_longer_one_of_two_windows() -> None:
    less, more = (FrontierWindow(job(stage, rank=3, delay_ms=ms, seed=2)) for stage, ms in (("forward", 60), ("data", 240)))
    found = long_stage_of(3, [less, more])
    assert found is not None and found.stage == "data"


@pytest.mark.parametrize("rank", [2, 9])
def test_others_are_long_in_none(rank: int) -> None:
    assert long_stage_of(rank, [FrontierWindow(job("data", rank=3, seed=2))]) is None


def test_where_all_meet_no_stage_is_stated() -> None:
    """It is long there by the work of its device, or because it waits."""
    assert long_stage_of(3, [FrontierWindow(job("backward", rank=3, seed=2, arrivals=True))]) is None


def test_stages_out_of_order_tell_none() -> None:
    assert long_stage_of(3, [FrontierWindow(replace(job("data", rank=3, seed=2), is_ordered=False))]) is None


@pytest.mark.parametrize(("late_ms", "in_time", "late"), [(0.0, True, False), (20.0, False, False), (120.0, False, True)])
def test_who_is_late_to_the_first_collective_of_a_step(late_ms: float, in_time: bool, late: bool) -> None:
    """A guest on a GPU slows it before the first collective too; one long kernel behind it does not."""
    made = job("backward", rank=3, arrivals=True)
    first = np.full(made.walls.shape, late_ms * MS)
    first[:, 3] = 0.0
    whole = judged(made)
    (culprit,) = whole.attribution.culprits
    seen = replace(whole, waits=Waiting(np.zeros(made.durations.shape), 2, first=first))
    seen = replace(seen, attribution=replace(whole.attribution, waits="collectives"))
    assert (is_early_in_time(seen, culprit), is_late_before(seen, culprit)) == (in_time, late)
    assert not is_early_in_time(whole, culprit)
