"""What the ranks of a window are to each other: whether they play one part, and whether they wait for each other."""

from __future__ import annotations

import numpy as np

from forensics.rules.reductions.frontier.accounting import slack
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.matrix import RESIDUAL, StageMatrix

# Marks of a step are written some microseconds late.
_LEAST_SPREAD_NS = 1e4
# A camp has a quarter of the ranks at least: fewer may be odd ones.
_CAMPS = 4


def waiting_follows(matrix: StageMatrix, sync: int, gates: Gates) -> bool:
    """Whether, from step to step, ranks that come early stay longer in the stage `sync`: then they wait there for the late one.

    Two equal totals alone prove nothing: two independent paths may be of one length. What moves together waits.
    """
    durations = matrix.durations
    if len(durations) < gates.least_steps or len(matrix.ranks) < 2:
        return False
    early = slack(durations)[:, sync]
    inside = durations[:, sync]
    early, inside = early - np.median(early, axis=0), inside - np.median(inside, axis=0)
    early, inside = early - early.mean(), inside - inside.mean(axis=1, keepdims=True)
    early = early - early.mean(axis=1, keepdims=True)
    spread = float(early.std())
    if spread < gates.waiting_spread * float(matrix.walls.mean()) or spread < _LEAST_SPREAD_NS:
        return False
    slope = float((early * inside).mean() / spread**2)
    correlation = float((early * inside).mean() / (spread * max(float(inside.std()), 1.0)))
    return abs(slope - 1) <= gates.waiting_slope and correlation >= gates.waiting_correlation


def roles_differ(matrix: StageMatrix, gates: Gates, waits_in: str | None = None) -> str | None:
    """A stage by whose usual time ranks fall into two camps of at least a quarter each, far apart; None when they do not.

    A stage in which they wait for each other says nothing of what they do.
    """
    count = len(matrix.ranks)
    if count < _CAMPS:
        return None
    usual = np.sort(np.median(matrix.durations, axis=0), axis=1)
    wall = float(np.median(matrix.walls))
    for stage, values in zip(matrix.columns, usual, strict=True):
        jumps = np.diff(values)
        place = int(np.argmax(jumps)) + 1
        camps = min(place, count - place) >= max(2, count // _CAMPS)
        inner = max(float(np.ptp(values[:place])), float(np.ptp(values[place:])))
        if (
            stage.stage not in (RESIDUAL, waits_in)
            and camps
            and jumps[place - 1] > max(gates.camp_gap * wall, gates.camp_apart * inner)
        ):
            return stage.stage
    return None
