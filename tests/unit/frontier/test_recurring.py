"""Equal ranks on a busy host are last by turns: in few steps some of them more often than others, which is chance."""

from __future__ import annotations

import numpy as np
import pytest

from forensics.rules.reductions.frontier.culprits import attribute
from forensics.rules.reductions.frontier.cut import Cut
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.matrix import Column
from forensics.rules.reductions.frontier.recurring import beyond_chance
from tests.unit.frontier.jobs import MS, matrix

STAGES_MS = {"data": 2.0, "forward": 5.0, "backward": 60.0, "optimizer": 6.0}


def named(*, seed: int, jitter: float, steps: int = 8, ranks: int = 4, slow: int = 0, by: float = 0.0) -> set[tuple[int, ...]]:
    """Who is named where work varies by a part of itself, and the first `slow` ranks compute longer by a part of the step."""
    chance = np.random.default_rng(seed)
    usual = np.array([*STAGES_MS.values()]) * MS
    work = usual[None, :, None] * (1 + chance.exponential(jitter, (steps, len(usual), ranks)))
    work[:, 2, :slow] += by * usual.sum()
    columns = tuple(Column(name) for name in STAGES_MS)
    numbers = np.arange(steps)
    lengths = work.sum(axis=1).max(axis=1)
    window = Cut(
        "backward", "collectives", "collectives", columns, (slice(0, 4),), work, numbers, lengths, tuple(range(ranks)), True
    )
    found = attribute(matrix(work / MS, columns=columns), window, Gates())
    return {culprit.ranks for culprit in found.culprits if culprit.ranks}


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_jitter_names_hardly_anybody(ranks: int) -> None:
    wrong = [seed for seed in range(150) if named(seed=seed, jitter=0.1, ranks=ranks)]
    assert len(wrong) <= 5


@pytest.mark.parametrize(
    ("slow", "jitter"), [(1, 0.05), (1, 0.1), (2, 0.05)], ids=["one rank", "one rank on a busy host", "two of four"]
)
def test_ranks_that_are_slow_in_every_step_are_named(slow: int, jitter: float) -> None:
    found = [seed for seed in range(50) if named(seed=seed, jitter=jitter, slow=slow, by=0.25) == {tuple(range(slow))}]
    assert len(found) >= 35


def test_who_causes_some_of_the_steps_is_not_named_beside_who_causes_all() -> None:
    causes = np.array([[True, step < 3, False, False] for step in range(6)])
    chosen = np.array([True, True, False, False])
    assert beyond_chance(causes, np.ones(6, bool), chosen).tolist() == [True, False, False, False]


def test_long_records_are_counted_too() -> None:
    causes = np.zeros((4000, 4), bool)
    causes[:1600, 0] = causes[1600:2900, 1] = causes[2900:, 2] = True
    chosen = np.array([True, False, False, False])
    assert beyond_chance(causes, np.ones(4000, bool), chosen).tolist() == [True, False, False, False]
