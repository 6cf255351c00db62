"""When the samples of a collection are taken: at uneven intervals, so that no period of the job is in step with them."""

from __future__ import annotations

import random
from itertools import accumulate

LEAST_FACTOR, MOST_FACTOR = 0.6, 1.7
"""Bounds of an interval, as multiples of the one asked for: wide enough that its double and its half do not fit every draw."""


def sample_times(count: int, interval_s: float, seed: int) -> tuple[float, ...]:
    """Seconds after the start of a collection at which each of `count` samples is due; the same for the same seed.

    A job whose step takes as long as an even interval would be met at the same place of its step each time, and look frozen.
    Each interval is drawn from another part of the range, in random order: two are hardly ever alike.
    """
    draw = random.Random(seed)
    intervals = count - 1
    parts = draw.sample(range(intervals), intervals) if intervals > 0 else []
    width = MOST_FACTOR - LEAST_FACTOR
    factors = (LEAST_FACTOR + width * (part + draw.random()) / intervals for part in parts)
    return tuple(accumulate((factor * interval_s for factor in factors), initial=0.0))[:count]
