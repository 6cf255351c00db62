"""Ranks that hold up the same steps, and whether a slow link between them accounts for both."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from forensics.rules.reductions.epochs.judged import JudgedLink
from forensics.rules.reductions.epochs.slow_links import JudgedLinks
from forensics.rules.reductions.network.late_ends import ends_of_slow_links
from forensics.rules.reductions.network.slowness import Slowness
from forensics.rules.reductions.pipeline.delay import Delay


def held_up(rank: int, *steps: int) -> list[Delay]:
    return [Delay(step, 1e9, (rank,), "pp", step, "send", step, (0, step), 9e8) for step in steps]


@pytest.mark.parametrize(
    ("ends", "is_slow", "steps", "found"),
    [
        ((1, 2), True, (3, 5, 8), {1, 2}),
        ((2, 1), True, (3, 5, 8), {1, 2}),
        ((1, 3), True, (3, 5, 8), set()),
        ((1, 2), False, (3, 5, 8), set()),
        ((1, 2), True, (4, 6, 8), set()),
    ],
    ids=["the link", "the other way", "another link", "a sound link", "other steps"],
)
def test_both_ends_of_a_slow_link_are_late_by_it(
    ends: tuple[int, int], is_slow: bool, steps: tuple[int, ...], found: set[int]
) -> None:
    judged = JudgedLinks((cast(JudgedLink, SimpleNamespace(ends=ends, is_slow=is_slow)),))
    assert ends_of_slow_links([held_up(1, 3, 5, 8), held_up(2, *steps)], Slowness(), judged) == found
