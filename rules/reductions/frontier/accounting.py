"""The frontier of a stage matrix: the furthest rank at each boundary, whose advances add up to the exposed time exactly.

StageFrontier section 3. A matrix is `durations[step, stage, rank]` in ns, stages in their order. One pass over steps, ranks and
stages, a block of steps at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_BLOCK_VALUES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Accounting:
    """The identity, in ns and by (step, stage): `frontier`, its `advances`, and who leads.

    `lag` is the frontier less the median prefix, `gap` the frontier less the second rank's prefix (0 for one rank), `leader`
    the column of a rank that attains it. `mean` and `highest` are the stage's mean and maximum over ranks, summed over
    steps: what an average or a maximum per stage would report.
    """

    frontier: Floats
    advances: Floats
    lag: Floats
    gap: Floats
    leader: Ints
    mean: Floats
    highest: Floats

    @property
    def exposed(self) -> float:
        """Sum of the exposed step times in ns."""
        return float(self.frontier[:, -1].sum()) if self.frontier.size else 0.0

    def shares(self) -> Floats:
        """Share of each stage in the exposed time; zeros when there is none."""
        total = self.exposed
        return self.advances.sum(axis=0) / total if total > 0 else np.zeros(self.advances.shape[1])


def account(durations: Floats) -> Accounting:
    """Take the frontier of `durations[step, stage, rank]` (ns, none negative)."""
    steps, stages, ranks = durations.shape
    frontier = np.zeros((steps, stages))
    lag, gap = np.zeros_like(frontier), np.zeros_like(frontier)
    leader = np.zeros((steps, stages), dtype=np.int64)
    mean, highest = np.zeros(stages), np.zeros(stages)
    size = max(1, _BLOCK_VALUES // max(stages * ranks, 1))
    for first in range(0, steps, size):
        block = durations[first : first + size]
        prefix = np.cumsum(block, axis=1)
        rows = slice(first, first + len(block))
        leader[rows] = prefix.argmax(axis=2)
        frontier[rows] = prefix.max(axis=2)
        middle, second = _middle_and_second(prefix)
        lag[rows], gap[rows] = frontier[rows] - middle, frontier[rows] - second
        mean += block.mean(axis=2).sum(axis=0)
        highest += block.max(axis=2).sum(axis=0)
    advances = np.diff(frontier, axis=1, prepend=0.0)
    return Accounting(frontier, advances, lag, gap, leader, mean, highest)


def slack(durations: Floats) -> Floats:
    """How far each rank is behind the frontier when a stage begins: `slack[step, stage, rank]`, never negative."""
    prefix = np.cumsum(durations, axis=1)
    before = np.concatenate([np.zeros_like(prefix[:, :1]), prefix[:, :-1]], axis=1)
    return np.asarray(before.max(axis=2, keepdims=True) - before)


def gain(durations: Floats, columns: Sequence[int], baseline: Floats) -> Floats:
    """Exposed time in ns that each step would lose if these stages took no longer than `baseline`.

    `baseline` is in ns and broadcast against `durations[:, columns]`; it never exceeds the observation
    (StageFrontier equation 4).
    """
    total = durations.sum(axis=1)
    spared = np.maximum(durations[:, list(columns)] - baseline, 0.0).sum(axis=1)
    return np.asarray(total.max(axis=1) - (total - spared).max(axis=1))


def over_ranks(values: Floats) -> Floats:
    """The cohort's median: `[step, stage, 1]` of `[step, stage, rank]`."""
    return np.asarray(np.median(values, axis=2, keepdims=True))


def over_steps(values: Floats) -> Floats:
    """Each rank's own median: `[1, stage, rank]` of `[step, stage, rank]`."""
    return np.asarray(np.median(values, axis=0, keepdims=True))


def _middle_and_second(prefix: Floats) -> tuple[Any, Any]:
    """Median and second largest over ranks."""
    ranks = prefix.shape[2]
    if ranks == 1:
        return prefix[:, :, 0], prefix[:, :, 0]
    low, high = (ranks - 1) // 2, ranks // 2
    ordered = np.partition(prefix, sorted({low, high, ranks - 2}), axis=2)
    return (ordered[:, :, low] + ordered[:, :, high]) / 2, ordered[:, :, ranks - 2]
