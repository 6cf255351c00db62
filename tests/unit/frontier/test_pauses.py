"""A step in which something else happened says nothing of the delay that is in all the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forensics.rules.reductions.frontier.matrix import StageMatrix
from tests.unit.frontier.jobs import MS, blamed, job

STEP = 13


def paused(found: StageMatrix) -> StageMatrix:
    """All ranks are held up for 150 ms inside the backward pass of one step, to which rank 0 came 50 ms late."""
    late, held = 50 * MS, 150 * MS
    durations, walls = found.durations.copy(), found.walls.copy()
    begins, ends = found.begins.copy(), (found.ends if found.ends is not None else found.begins).copy()
    durations[STEP, 0, 0] += late
    durations[STEP, 2] += held
    durations[STEP, 2, 0] -= late
    ends[STEP, :2, 0] += int(late)
    ends[STEP, 2:] += int(held)
    ends[STEP + 1 :] += int(held)
    begins[STEP + 1 :] += int(held)
    walls[STEP] += held
    return replace(found, durations=durations, walls=walls, begins=begins, ends=ends)


@pytest.mark.parametrize("seed", range(4))
def test_one_pause_does_not_make_a_delay_an_absorbed_one(seed: int) -> None:
    slow = job("optimizer", rank=2, delay_ms=60, ranks=4, steps=25, seed=seed, arrivals=True)
    assert blamed(paused(slow)) == blamed(slow) == [("optimizer", (2,))]
