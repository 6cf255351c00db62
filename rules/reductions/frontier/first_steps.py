"""A record whose first step or two are shorter than all others: too few to accuse anybody by them alone."""

from __future__ import annotations

import numpy as np

from forensics.rules.reductions.frontier.losses import Culprit
from forensics.rules.reductions.frontier.matrix import StageMatrix
from forensics.rules.reductions.frontier.onsets import LEAST_BEFORE, sharp_rise
from forensics.rules.reductions.frontier.verdicts import WindowVerdict

_MOSTLY = 0.8
"""Of what steps became longer by: what one stage did explains it."""


def first_shorter(matrix: StageMatrix) -> int | None:
    """How many steps, fewer than show what is usual, are all shorter than each one behind them; None where none are."""
    row = sharp_rise(np.median(matrix.walls, axis=1), matrix.steps, least=1)
    return None if row is None or row >= LEAST_BEFORE else row


def longer_than_first(judged: WindowVerdict) -> Culprit | None:
    """What the stage in which ranks meet took longer than in those steps, if it is nearly all that steps became longer by."""
    matrix, stage = judged.matrix, judged.attribution.sync
    row = first_shorter(matrix)
    if row is None or stage is None:
        return None
    lengths = np.median(matrix.walls, axis=1)
    spent = np.median(matrix.durations[:, matrix.members(stage)].sum(axis=1), axis=1)
    before, after = float(np.median(lengths[:row])), float(np.median(lengths[row:]))
    grown = float(np.median(spent[row:]) - np.median(spent[:row]))
    if grown < _MOSTLY * (after - before):
        return None
    count = len(lengths) - row
    lost = (grown * count, grown / after, count, count, grown)
    return Culprit(stage, None, (), *lost, "history", "throughout", onset=int(matrix.steps[row]))
