"""Since when the steps of a window are lastingly longer: by its rows, by few of them or of its steps, or by other records."""

from __future__ import annotations

import numpy as np

from forensics.rules.reductions.frontier.accounting import Floats, Ints
from forensics.rules.reductions.frontier.cut import Cut
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.matrix import StageMatrix
from forensics.rules.reductions.onset import onset_of, warmed_up

LEAST_REFERENCE = 2
"""Rows before a change that tell what was usual: of three steps before it, from one meeting to the next."""
LEAST_BEFORE = 3
"""Rows or steps before a change that show it, where all of them are shorter than all behind it."""
_LEAST_SIDE = 5  # rows on either side of a change, the first one of the run included
_LEAST_BEHIND = 10  # rows behind a change that few rows precede
_RISE = 1 / 0.9  # "below 90% of the average performance" (VenusTrace 5.3), where no row before is as long as one behind
STARTS = 1.33  # times the middle row: those of a start
_LONGER = 1.05  # than usual is the first row of a change
_FIRST_STEPS = 2  # numbers of steps with which a job begins: batches were fetched ahead, and no gradient is scaled yet


def onset_row(found: Cut, gates: Gates, since: int | None) -> int | None:
    """The row from which steps are lastingly longer, None when there is no such row; `since` is the step, if known."""
    row = sharp_rise(found.lengths, found.steps)
    row = _by_medians(found.lengths, gates) if row is None else row
    return row if row is not None or since is None else _stated(found, gates, since)


def onset_step(matrix: StageMatrix) -> int | None:
    """The step that few precede, by whole steps: where ranks meet within a step there is one row less than steps."""
    row = sharp_rise(np.median(matrix.walls, axis=1), matrix.steps)
    return None if row is None else int(matrix.steps[row])


def sharp_rise(lengths: Floats, steps: Ints, least: int = LEAST_BEFORE) -> int | None:
    """The row that few (`least` or more) precede, all shorter than every one behind it: no chance has them in that order.

    Start-up makes the first rows longer, and hides such a change.
    """
    if steps[0] <= _FIRST_STEPS:
        return None
    for row in range(least, len(lengths) - _LEAST_BEHIND + 1):
        before, behind = lengths[:row], lengths[row:]
        if behind.min() > _LONGER * before.max() and np.median(behind) >= _RISE * np.median(before):
            return row
    return None


def _by_medians(lengths: Floats, gates: Gates) -> int | None:
    """The first steps of a run pay for start-up, whatever their stages do."""

    def is_longer(before: float, after: float, first: float) -> bool:
        return after >= gates.onset_rise * before and first > _LONGER * before

    least = max(int(gates.least_steps), _LEAST_SIDE)
    warm = warmed_up(lengths, STARTS)
    place = onset_of(lengths[warm:].tolist(), (least - 1, least), is_longer)
    return None if place is None else place + warm


def _stated(found: Cut, gates: Gates, since: int) -> int | None:
    """The row of a step within the window, with enough rows behind it to speak for a large loss."""
    row = int(np.searchsorted(found.steps, since))
    return row if 0 < row <= len(found.steps) - int(gates.repeats) else None
