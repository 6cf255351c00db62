"""What recorded stages of steps tell against a sound job, although nobody is accused by it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from forensics.rules.reductions.frontier.first_steps import first_shorter
from forensics.rules.reductions.frontier.matrix import StageMatrix
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.frontier.verdicts import longest

_BESIDE = ("data", "callbacks", "checkpoint", "eval")
"""Stages in which a step trains nothing."""
# Of a step, on every rank: short steps of sound jobs log for up to a sixth of the time.
_MUCH = 0.25
# Steps of which half are as long: fewer are those of a start, or of one evaluation.
_LEAST_STEPS = 5


def stage_signs(windows: FrontierWindows) -> Iterator[str]:
    """A record whose first step or two are shorter than all others, and stages that keep all ranks from training."""
    matrices = [window.matrix for window in longest(windows)]
    yield from (sign for matrix in matrices for sign in _short_at_first(matrix))
    yield from (sign for matrix in matrices for sign in _beside_training(matrix))


def _short_at_first(matrix: StageMatrix) -> Iterator[str]:
    """Too few steps to know what was usual: a job that goes on from a checkpoint finds batches fetched ahead."""
    row = first_shorter(matrix)
    if row is None:
        return
    lengths = np.median(matrix.walls, axis=1)
    before, after = (float(np.median(part)) / 1e6 for part in (lengths[:row], lengths[row:]))
    first = "first step" if row == 1 else f"first {row} steps"
    took = f"the {first} of the record took {before:.0f} ms, the {len(lengths) - row} after {after:.0f} ms"
    yield f"{took}: too few to know which are usual"


def _beside_training(matrix: StageMatrix) -> Iterator[str]:
    """What all ranks were always in: it may be how the job is made, or storage that was slow from the begin on."""
    if len(matrix.steps) < _LEAST_STEPS:
        return
    step = float(np.median(matrix.walls))
    for stage in _BESIDE:
        least = float(np.median(matrix.durations[:, matrix.members(stage)].sum(axis=1).min(axis=1)))
        if least >= _MUCH * step > 0:
            yield f"every rank spends {100 * least / step:.0f} % of a step in {stage}, and whether that is usual is not known"
