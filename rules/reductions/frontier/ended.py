"""Traces in which hosts wait for their devices behind all stages: there the ranks meet, and no stage is long for it.

Who launches a step without waiting reads the loss at its end, or waits in whatever comes next: then the last named stage is
over long before the device is, and most of what ranks wait for each other lies between it and the end of the step.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from forensics.rules.reductions.frontier.matrix import REST, Column, StageMatrix
from forensics.rules.reductions.frontier.waits import Waits

_OF_DEVICES = frozenset({"kineto", "nsight"})


def ended(matrix: StageMatrix, waits: Waits) -> StageMatrix | None:
    """The window with what follows the last stage as one more; None where most waiting in collectives begins before that."""
    ends = matrix.ends
    if ends is None or matrix.source not in _OF_DEVICES or not matrix.columns:
        return None
    last = ends[:, -1] + matrix.epoch_ns
    before = behind = 0
    for row, column in np.ndindex(last.shape):
        for wait in waits.get((matrix.ranks[column], int(matrix.steps[row])), ()):
            if wait.end > int(last[row, column]):
                behind += wait.end - wait.begin
            else:
                before += wait.end - wait.begin
    if behind <= before:
        return None
    over = np.maximum(matrix.begins + np.round(matrix.walls).astype(np.int64), ends[:, -1])
    rest = (over - ends[:, -1]).astype(np.float64)
    return replace(
        matrix,
        columns=(*matrix.columns, Column(REST)),
        durations=np.concatenate([matrix.durations, rest[:, None, :]], axis=1),
        ends=np.concatenate([ends, over[:, None, :]], axis=1),
    )
