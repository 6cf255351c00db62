"""Samples lie at uneven times: no job is in step with all of them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from forensics.collect.plan import LEAST_FACTOR, MOST_FACTOR, make_plan, sample_times
from forensics.collect.target import Context, Settings, Target


def intervals(times: tuple[float, ...]) -> list[float]:
    return [after - before for before, after in pairwise(times)]


def test_the_same_seed_gives_the_same_times() -> None:
    assert sample_times(5, 2.0, 7) == sample_times(5, 2.0, 7)
    assert sample_times(5, 2.0, 7) != sample_times(5, 2.0, 8)


@pytest.mark.parametrize("count", [1, 2, 3, 40])
def test_intervals_stay_within_their_bounds(count: int) -> None:
    for seed in range(50):
        times = sample_times(count, 2.0, seed)
        assert len(times) == count and times[0] == 0.0
        assert all(2.0 * LEAST_FACTOR <= gap <= 2.0 * MOST_FACTOR for gap in intervals(times))


def test_no_interval_at_all_is_no_wait() -> None:
    assert sample_times(3, 0.0, 1) == (0.0, 0.0, 0.0)


def in_step(times: tuple[float, ...], period: float) -> bool:
    """Whether all samples meet a job of that period within a twentieth of its step."""
    places = [time / period % 1.0 for time in times]
    return all(min(place, 1.0 - place) < 0.05 for place in places)


@pytest.mark.parametrize("period", [0.5, 1.0, 2.0, 2.02, 4.0])
def test_a_job_of_the_samples_own_period_is_seldom_met_at_one_place(period: float) -> None:
    met = sum(in_step(sample_times(3, 2.0, seed), period) for seed in range(500))
    assert in_step((0.0, 2.0, 4.0), min(period, 2.0))
    assert met < 0.04 * 500


def test_all_ranks_are_sampled_at_the_same_times(context: Context) -> None:
    settings = context.settings
    due = sample_times(settings.samples, settings.interval_s, settings.seed)
    plan = make_plan(context, [Target(0, "alive", 10), Target(1, "alive", 11)])
    for collector in ("proc.tasks", "stack.pyspy"):
        offsets = {rank: [task.offset_s for task in plan if (task.id, task.rank) == (collector, rank)] for rank in (0, 1)}
        assert offsets[0] == offsets[1] == list(due)


def test_two_collections_differ() -> None:
    assert len({Settings().seed for _ in range(8)}) > 1
