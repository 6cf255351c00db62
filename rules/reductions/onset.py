"""Since when values are lastingly higher than before in the same record, and which steps are of a start."""

from __future__ import annotations

from bisect import bisect, bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# The values since a change are above nine tenths of those before it, in this share at least.
_OF_EARLIER, _APART = 0.9, 0.8
_ALIKE = 1 - 1e-9

Floats = npt.NDArray[np.float64]
Judgement = Callable[[float, float, float], bool]
"""Whether the medians before and after a place, and the value there, are a change."""


class _Spread(NamedTuple):
    """Median of values, their distances from it (sum), and what nine tenths of them do not exceed."""

    median: float
    distances: float
    most: float


def onset_of(values: Sequence[float], sides: tuple[int, int], is_change: Judgement) -> int | None:
    """The place at which two levels explain finite values best, with so many values on its sides; None where no place does."""
    before, after = _spreads(values), _spreads(reversed(values))
    rest = sorted(values)
    found, least = None, inf
    for place in range(1, len(values) - sides[1] + 1):
        del rest[bisect_left(rest, values[place - 1])]
        early, late = before[place - 1], after[len(values) - place - 1]
        if place < sides[0] or not is_change(early.median, late.median, values[place]):
            continue
        cost = early.distances + late.distances
        # Of places that explain alike, the first: their sums differ by rounding.
        if cost < least * _ALIKE and len(rest) - bisect(rest, early.most) >= _APART * len(rest):
            found, least = place, cost
    return found


def warmed_up(lengths: Floats, longer: float) -> int:
    """The steps in which a job warms up, `longer` times the middle one; the first one at least, a third at most.

    To leave out steps that are longer, at the begin, hides no job that became slower.
    """
    is_longer = lengths >= longer * np.median(lengths)
    return max(1, min(int(np.argmin(is_longer)), len(lengths) // 3))


def _spreads(values: Iterable[float]) -> list[_Spread]:
    """The spread of the first value, of the first two, and so on, from sums of the lower half that are kept."""
    ordered: list[float] = []
    total = low = 0.0
    found = []
    for value in values:
        insort(ordered, value)
        total += value
        half, is_odd = divmod(len(ordered), 2)
        middle = ordered[half]
        low += min(value, middle) - middle if is_odd else min(value, ordered[half - 1])
        median = middle if is_odd else (ordered[half - 1] + middle) / 2
        found.append(_Spread(median, total - 2 * low - middle * is_odd, _quantile(ordered)))
    return found


def _quantile(ordered: Sequence[float]) -> float:
    """What nine tenths do not exceed, in proportion between two values."""
    at = _OF_EARLIER * (len(ordered) - 1)
    below = int(at)
    above = ordered[min(below + 1, len(ordered) - 1)]
    return ordered[below] + (above - ordered[below]) * (at - below)
