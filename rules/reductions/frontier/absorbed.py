"""Whether what a stage lost was taken up elsewhere: then the step time does not follow it."""

from __future__ import annotations

import numpy as np

from forensics.rules.reductions.frontier.accounting import Floats
from forensics.rules.reductions.frontier.gates import Gates

_OF_ROWS = 20  # one of so many rows may be late by a pause that has nothing to do with the delay


def is_absorbed(lost: Floats, longer: Floats, usual: float, gates: Gates) -> bool:
    """Whether rows in which more was lost surely did not take longer for it: then the others waited for something else anyway.

    `longer` is what each row took beyond its arrivals without the excess.
    """
    for _ in range(2):
        spread = float(lost.std())
        if spread < gates.excess_share * usual:
            return False
        slope, apart = _line(lost, longer)
        if slope + gates.absorbed_errors * float(apart.std()) / (spread * np.sqrt(len(lost))) >= gates.absorbed_slope:
            return False
        kept = np.sort(np.argsort(np.abs((lost - lost.mean()) * apart), kind="stable")[: -(-len(lost) // _OF_ROWS)])
        lost, longer = lost[kept], longer[kept]
    return True


def _line(along: Floats, values: Floats) -> tuple[float, Floats]:
    """Slope of values along others, and what is apart from the line."""
    over, beyond = along - along.mean(), values - values.mean()
    slope = float((over * beyond).mean()) / float(along.var())
    return slope, beyond - slope * over
