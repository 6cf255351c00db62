"""Since when values are lastingly higher than before: one search for steps, calls and lateness."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.rules.reductions.onset import onset_of


def by_definition(values: list[int], sides: tuple[int, int], rise: float) -> dict[int, float]:
    """Places of a change, with the distances from the medians on both sides."""
    found = {}
    for place in range(sides[0], len(values) - sides[1] + 1):
        early, late = np.array(values[:place]), np.array(values[place:])
        before, after = np.median(early), np.median(late)
        apart = float((late > np.quantile(early, 0.9)).mean())
        if after >= rise * before and apart >= 0.8 and late[0] > before:
            found[place] = float(np.abs(early - before).sum() + np.abs(late - after).sum())
    return found


@given(
    st.lists(st.integers(0, 40), max_size=30),
    st.lists(st.integers(30, 90), max_size=30),
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.sampled_from((1.0, 1.33, 2.0)),
)
def test_the_place_with_the_least_distance_from_two_medians(
    early: list[int], late: list[int], sides: tuple[int, int], rise: float
) -> None:
    costs = by_definition(early + late, sides, rise)
    found = onset_of(early + late, sides, lambda before, after, first: after >= rise * before and first > before)
    assert found == min(costs, key=lambda place: (costs[place], place), default=None)


@pytest.mark.parametrize(
    "values",
    [[], [5.0], [100.0] * 20, [100.0, 300.0] * 10, [100.0] * 12 + [300.0] * 2, [300.0] * 9 + [100.0] * 9],
)
def test_no_lasting_rise(values: list[float]) -> None:
    assert onset_of(values, (4, 4), lambda before, after, _: after >= 1.33 * before) is None


def test_a_rise_behind_a_slow_start() -> None:
    values = [900.0, *[100.0] * 10, *[140.0] * 10]
    assert onset_of(values, (4, 4), lambda before, after, _: after >= 1.33 * before) == 11
