"""What lengths of steps that differ tell: how much the middle one may have changed at most, and which are long in a rhythm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Of a median against the distance of the quartiles of what it is the median of, for a normal distribution: 1.2533 / 1.349.
_OF_QUARTILES = 0.929
# In 19 of 20 such records it changed by less.
_ERRORS = 2.0
_LEAST = 5
# Times the middle step: what recurs and is longer is a pause of its own (a save, an evaluation), and no spread.
_PAUSE = 1.33
# Of the distances between long steps: where as many are equal they are how the program is (gradients are summed, logs written).
_EVENLY, _LEAST_EVEN = 0.8, 3
# Of steps without a rhythm the last two are the longest by chance in one of 45 records of ten, in one of 276 of 24.
_LEAST_AT_LAST, _LONGER = 2, 1.02
# Now and then a step may last ten times as long (evaluation, checkpoints); what fills less than this is no step.
_LEAST_FILLED = 0.25


MOST_SPREAD = 1.33
"""Steps whose middle half differs by more than this say nothing of a factor as small as that."""
LEAST_STEPS = 9
"""Four steps on either side of a change, after the first one, which pays for start-up."""
# Sums of as many calls as a step has are that much closer to each other than chance would bring them.
_OF_DISORDER, _BUT_A_TENTH = 0.25, 0.9


def most_factor(first: Floats, last: Floats) -> float:
    """Times as long as at first the middle step may be at last, at most; infinite where too few steps tell it.

    Steps that are alike in runs (short ones, then long ones) tell as much as fewer that are not.
    """
    if min(len(first), len(last)) < _LEAST or min(first.min(), last.min()) <= 0:
        return float("inf")
    parts = [np.log(first), np.log(last)]
    error = np.sqrt(sum((_OF_QUARTILES * _between_quartiles(part)) ** 2 / len(part) * _by_runs(part) for part in parts))
    return float(np.exp(np.median(parts[1]) - np.median(parts[0]) + _ERRORS * error))


def are_even(numbers: Sequence[int]) -> bool:
    """Whether steps recur at equal distances."""
    apart = np.diff(sorted(numbers))
    middle = np.median(apart) if len(apart) >= _LEAST_EVEN else 0
    return bool(middle > 1 and (apart == middle).mean() >= _EVENLY)


def even_pauses(lengths: Floats) -> npt.NDArray[np.bool_]:
    """Long steps that recur evenly from one end of the record to the other, and did not become longer themselves; else none.

    They are due then (saves, evaluations), and no spread of the steps between them.
    """
    long = lengths > _PAUSE * np.median(lengths)
    at = np.flatnonzero(long)
    if not are_even(at.tolist()) or max(at[0], len(lengths) - 1 - at[-1]) > np.median(np.diff(at)):
        return np.zeros_like(long)
    pauses = np.array_split(lengths[long], 2)
    return long if np.median(pauses[1]) <= _PAUSE * np.median(pauses[0]) else np.zeros_like(long)


def longest_at_last(lengths: Floats) -> bool:
    """Whether the last two steps or more, a third at most, are each longer than all before them: what began there may last."""
    third = range(_LEAST_AT_LAST, len(lengths) // 3 + 1)
    return any(lengths[-count:].min() >= _LONGER * lengths[:-count].max() for count in third)


def _between_quartiles(values: Floats) -> float:
    low, high = np.quantile(values, (0.25, 0.75))
    return float(high - low)


def _by_runs(values: Floats) -> float:
    """By how much the variance of a mean grows where each value is like the one before."""
    place = np.argsort(np.argsort(values)).astype(np.float64)
    alike = float(np.corrcoef(place[:-1], place[1:])[0, 1])
    return (1 + alike) / (1 - alike) if 0 < alike < 1 else 1.0


def fills(lengths: Floats) -> bool:
    """Whether times of the middle length fill the record: calls of one burst are alike, and the time passes between bursts."""
    return bool(np.median(lengths) * len(lengths) >= _LEAST_FILLED * lengths.sum())


def outer_thirds(lengths: Floats) -> tuple[Floats, Floats]:
    """The first third of values, and the last."""
    third = len(lengths) // 3
    return lengths[:third], lengths[-third:]


def spread_of(lengths: Floats) -> float:
    """Upper quarter over lower quarter."""
    low, high = np.quantile(lengths, 0.25), np.quantile(lengths, 0.75)
    return float(high / low) if low > 0 else float("inf")


def in_steps(lengths: Floats, ends: Sequence[int]) -> tuple[Floats, Sequence[int]]:
    """Lengths and ends of as few calls at a time as make steps of one length, counted from the end; else one at a time.

    Both ends of the record are asked by themselves: a job that changed in between has a rhythm all the same.
    """
    total = np.concatenate(([0.0], np.cumsum(lengths)))
    for calls in (1, *range(2, len(lengths) // (2 * LEAST_STEPS) + 1)):
        steps = np.diff(total[len(lengths) % calls :: calls])
        thirds = zip(outer_thirds(lengths), outer_thirds(steps), strict=True)
        if all(spread_of(sums) <= MOST_SPREAD and fills(sums) and _recurs(single, sums, calls) for single, sums in thirds):
            return steps, ends[len(lengths) % calls + calls - 1 :: calls]
    return lengths, ends


def _recurs(single: Floats, sums: Floats, calls: int) -> bool:
    """Whether sums of so many calls, but a tenth, are closer to each other than sums of as many values without an order are."""
    disorder = np.abs(single - np.median(single)).mean() * calls**0.5
    return calls == 1 or bool(np.quantile(np.abs(sums - np.median(sums)), _BUT_A_TENTH) <= _OF_DISORDER * disorder)
