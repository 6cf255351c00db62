"""Which steps and ranks make a window: all of its ranks have all of its steps, with the same ordered stages in each.

Records of ranks begin and end at different steps: some were cut, or are of a process that ended. Cut wherever the members
change, a record of forty steps falls into pieces too short to be compared. So a window may leave out ranks that have a part of
its steps, and windows may overlap: those are chosen that add most steps of ranks to what the windows before them show.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from forensics.rules.reductions.frontier.accounting import Flags, Ints

# Pieces in which members or stages are the same: more of them are no few records that were cut.
_MOST_PIECES = 128
# Ranks of a group of which one is shown by a window at least: fewer are not the group.
_OF_GROUP = 2
# One step shows nothing that could be compared.
_LEAST_STEPS = 2


class WindowCut(NamedTuple):
    """Consecutive steps and those ranks (flags) that have all of them."""

    steps: slice
    ranks: Flags


def window_cuts(present: Flags, schema: Ints, most: int) -> list[WindowCut]:
    """The windows that show most, `most` of them, in order of their steps; one step alone only where that is all there is.

    `present` and the `schema` of ordered stages are `[step, rank]`.
    """
    if not len(present):
        return []
    changed = _changes(present, schema)
    bounds = np.r_[0, np.flatnonzero(changed.any(axis=1)), len(present)]
    pieces = [WindowCut(slice(begin, end), present[begin]) for begin, end in itertools.pairwise(bounds.tolist())]
    found = _covering(present, changed, bounds, most) if len(pieces) <= _MOST_PIECES else []
    pieces.sort(key=lambda each: (each.steps.start - each.steps.stop, each.steps.start))
    long = [each for each in pieces[:most] if each.steps.stop - each.steps.start >= _LEAST_STEPS]
    return sorted(found or long or pieces[:1], key=lambda each: (each.steps.start, each.steps.stop))


def _changes(present: Flags, schema: Ints) -> Flags:
    """Where a rank is there or not unlike in the step before; all ranks where one of them has other stages than before."""
    changed = np.zeros_like(present)
    changed[1:] = present[1:] != present[:-1]
    other = (schema[1:] != schema[:-1]) & present[1:] & present[:-1]
    changed[1:] |= other.any(axis=1, keepdims=True)
    return changed


def _covering(present: Flags, changed: Flags, bounds: Ints, most: int) -> list[WindowCut]:
    """Windows of at least half of the ranks, each the one that adds most to those before it."""
    counts = np.cumsum(changed, axis=0, dtype=np.int64)
    begins, ends = bounds[:-1], bounds[1:]
    left = present.copy()
    found: list[WindowCut] = []
    while len(found) < most:
        added = np.vstack([np.zeros(left.shape[1], np.int64), np.cumsum(left, axis=0)])
        best = max((_best_from(int(begin), ends, present, counts, added) for begin in begins), key=lambda each: each[:3])
        if best[0] < _LEAST_STEPS:
            break
        _, _, begin, end = best
        ranks = present[begin] & (counts[end - 1] == counts[begin])
        found.append(WindowCut(slice(begin, end), ranks))
        left[begin:end, ranks] = False
    return found


def _best_from(begin: int, ends: Ints, present: Flags, counts: Ints, added: Ints) -> tuple[int, int, int, int]:
    """Of the windows from a step on: steps of ranks that the best one adds, those that it has, its begin and its end."""
    ends = ends[ends >= begin + _LEAST_STEPS]
    if not len(ends):
        return 0, 0, begin, begin
    there = present[begin] & (counts[ends - 1] == counts[begin])
    size = there.sum(axis=1)
    gain = np.where(_OF_GROUP * size >= present.any(axis=0).sum(), ((added[ends] - added[begin]) * there).sum(axis=1), 0)
    area = size * (ends - begin)
    place = int(np.lexsort((area, gain))[-1])
    return int(gain[place]), int(area[place]), begin, int(ends[place])
