"""What lengths of steps that differ tell: how much the middle one may have changed at most."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Of a median against the distance of the quartiles of what it is the median of, for a normal distribution: 1.2533 / 1.349.
_OF_QUARTILES = 0.929
# In 19 of 20 such records it changed by less.
_ERRORS = 2.0
_LEAST = 5


def most_factor(first: Floats, last: Floats) -> float:
    """Times as long as at first the middle step may be at last, at most; infinite where too few steps tell it.

    Steps that are alike in runs (short ones, then long ones) tell as much as fewer that are not.
    """
    if min(len(first), len(last)) < _LEAST or min(first.min(), last.min()) <= 0:
        return float("inf")
    parts = [np.log(first), np.log(last)]
    error = np.sqrt(sum((_OF_QUARTILES * _between_quartiles(part)) ** 2 / len(part) * _by_runs(part) for part in parts))
    return float(np.exp(np.median(parts[1]) - np.median(parts[0]) + _ERRORS * error))


def _between_quartiles(values: Floats) -> float:
    low, high = np.quantile(values, (0.25, 0.75))
    return float(high - low)


def _by_runs(values: Floats) -> float:
    """By how much the variance of a mean grows where each value is like the one before."""
    place = np.argsort(np.argsort(values)).astype(np.float64)
    alike = float(np.corrcoef(place[:-1], place[1:])[0, 1])
    return (1 + alike) / (1 - alike) if 0 < alike < 1 else 1.0
