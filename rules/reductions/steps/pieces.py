"""Steps of a job in which no call recurs once a step: gradients of every layer, or buckets of one size, and nothing else.

What recurs least often then recurs several times a step, and cuts it into pieces. One piece in each step is unlike the others:
it has the forward pass before the first gradients. Either its calls show that, or, where all calls are alike, the time that the
host takes until it makes the next one.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from forensics.rules.reductions.steps.records import UNKNOWN, Ints, Record

Floats = npt.NDArray[np.float64]
# Of calls: the piece with the forward pass has as many as that of several layers.
_TIMES_AS_MANY = 3
# Of steps: evaluation, checkpoints, and a host that was held up may make one unlike the others.
_ALIKE = 0.8
# Of the longest of the other pauses between the calls of a step.
_LONGER = 2.0
_MOST_CALLS, _LEAST_STEPS = 64, 3


def whole_steps(record: Record, begins: Ints) -> tuple[Ints, bool]:
    """The begins of steps among those of pieces, or all where these are whole steps, and whether times were asked."""
    if len(begins) <= _LEAST_STEPS:
        return begins, False
    barriers = np.append(0, np.cumsum(record.is_barrier))
    calls = np.diff(begins) - np.diff(barriers[begins])
    marked_ns = record.enqueued_ns[begins - 1]
    is_single = bool((calls == 1).all())
    is_timed = is_single and not (marked_ns == UNKNOWN).any()
    chosen = _after_pauses(np.diff(marked_ns).astype(np.float64)) if is_timed else _unlike(record, begins, calls)
    return (begins if chosen is None else begins[chosen]), is_single


def _unlike(record: Record, begins: Ints, calls: Ints) -> Ints | None:
    """Pieces with several times as many calls as the others, each the same number of pieces after the one before.

    Those others have no call twice: a piece is of one layer. In whole steps calls recur, and evaluation makes some longer.
    """
    usual = int(np.flatnonzero(calls == _usual(calls))[-1])
    unlike = np.flatnonzero(calls >= _TIMES_AS_MANY * calls[usual])
    if len(unlike) < _LEAST_STEPS or _share_of_usual(calls[unlike]) < _ALIKE:
        return None
    layer = record.form[begins[usual] : begins[usual + 1]]
    if len(np.unique(layer)) < len(layer):
        return None
    apart = np.diff(unlike)
    return unlike if _share_of_usual(apart) >= _ALIKE and _usual(apart) > 1 else None


def _usual(values: Ints) -> int:
    return int(Counter(values.tolist()).most_common(1)[0][0])


def _share_of_usual(values: Ints) -> float:
    return float((values == _usual(values)).mean())


def _after_pauses(pauses: Floats) -> Ints | None:
    """Every k-th piece, for the least k that has the longest pause of the host in the same piece of nearly each step."""
    for size in range(2, min(_MOST_CALLS, len(pauses) // _LEAST_STEPS) + 1):
        cut = len(pauses) % size
        steps = pauses[cut:].reshape(-1, size)
        first = int(np.median(steps, axis=0).argmax())
        others = np.delete(steps, first, axis=1).max(axis=1)
        if (steps[:, first] >= _LONGER * others).mean() >= _ALIKE:
            every: Ints = np.arange(len(pauses) + 1)
            chosen: Ints = every[(every - cut - first) % size == 0]
            return chosen
    return None
