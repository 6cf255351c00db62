"""The stage that a rank which comes late to calls is long in, by its recorded stages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forensics.rules.reductions.frontier.long_stages import (
    is_early_in_time,
    is_late_before,
    is_of_device,
    long_stage_of,
    stage_of,
)
from forensics.rules.reductions.frontier.verdicts import FrontierWindow
from forensics.rules.reductions.frontier.waits import Made, Waiting
from tests.unit.frontier.jobs import MS, job, judged


@pytest.mark.parametrize("stage", ["data", "forward", "callbacks", "optimizer"])
def test_the_stage_of_the_rank_that_is_long(stage: str) -> None:
    found = long_stage_of(3, [FrontierWindow(job(rank=1)), FrontierWindow(job(stage, rank=3, seed=2))])
    assert found is not None and found.name == stage and not found.on_device


def test_the_longer_one_of_two_windows() -> None:
    less, more = (FrontierWindow(job(stage, rank=3, delay_ms=ms, seed=2)) for stage, ms in (("forward", 60), ("data", 240)))
    found = long_stage_of(3, [less, more])
    assert found is not None and found.name == "data"


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


@pytest.mark.parametrize(
    ("later_ms", "waited_ms", "first_ms", "device", "late"),
    [
        (0.0, 120.0, 120.0, True, True),
        (0.0, 120.0, 0.0, True, False),
        (120.0, 120.0, 0.0, False, False),
        (0, 0, 0, False, False),
    ],
    ids=["its device, or in forward", "its device", "its host", "nobody waits in these calls"],
)
def test_who_waits_for_its_own_device_in_a_stage_behind_which_ranks_meet(
    later_ms: float, waited_ms: float, first_ms: float, device: bool, late: bool
) -> None:
    """Rank 3 stays 120 ms longer in backward, and all wait for its gradients in the optimizer."""
    whole = judged(job("backward", rank=3, arrivals=True))
    (culprit,) = whole.attribution.culprits
    launched, waited, first = (np.full(whole.matrix.durations.shape, ms * MS) for ms in (40.0, waited_ms, first_ms))
    launched[:, :, 3] += later_ms * MS
    waited[:, :, 3] = first[:, :, 3] = 0.0
    made = Made(launched, waited, first)
    seen = replace(
        whole, waits=Waiting(np.zeros(whole.matrix.durations.shape), 3, made=made), matrix=replace(whole.matrix, arrived=None),
        attribution=replace(whole.attribution, waits="collectives", sync="optimizer"),
    )  # fmt: skip
    assert (is_of_device(seen, culprit), is_late_before(seen, culprit)) == (device, late)
    assert stage_of(seen, culprit, launched=device) == ("unknown" if device and late else "backward")
