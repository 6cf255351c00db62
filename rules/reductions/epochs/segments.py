"""Where each operator begins and ends in the traffic of a series (Pulse section 5.2, algorithm 1), without a loop over epochs.

An operator ends where a gap of at least delta follows and as many bytes as expected have moved: the expected volume is a lower
bound, for headers, retransmissions and grants come on top. Each operator begins anew after a gap, so that what one moved in
excess is never counted for the next. The printed algorithm never closes the last operator; here it is `open` where fewer
bytes than expected moved, or where the capture ends before a gap of delta could be seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forensics.rules.reductions.epochs.cells import Bools, Cells, Ints

DELTA_NS = 1_000_000
"""Pulse 5.2: gaps inside operators are of microseconds, delta is of the order of a millisecond."""
# Of a number of 64 bits with a sign.
_BITS = 63


@dataclass(frozen=True, slots=True)
class Segments:
    """Operators of several series: their cells are those from `first` up to `stop` (excluded), in order.

    `begin` and `end` are the epochs of the first and last cell, `bytes` the volume, `active` the number of cells: what Pulse
    6.2 calls the actual communication time, in epochs. `open` marks operators that are not seen to have ended.
    """

    series: Ints
    first: Ints
    stop: Ints
    begin: Ints
    end: Ints
    bytes: Ints
    active: Ints
    open: Bools

    def __len__(self) -> int:
        return len(self.first)


def segments(cells: Cells, delta: int, last_epoch: int, expected: Ints | None = None) -> Segments:
    """Cut the cells of all series into operators.

    `delta` is in epochs. `expected` are bytes that an operator moves at least, one number for each cell (the same within a
    series), or None: then every gap of delta ends one. `last_epoch` is the last one that was captured.
    """
    starts = _bursts(cells, delta)
    total = np.concatenate([[0], np.cumsum(cells.bytes)])
    if expected is not None and len(starts):
        starts = _merged(cells, starts, total, expected)
    stop = np.append(starts[1:], len(cells)).astype(np.int64)
    moved = total[stop] - total[starts]
    end = cells.epoch[stop - 1] if len(starts) else starts
    is_open = last_epoch - end < delta
    if expected is not None:
        is_open |= moved < expected[starts]
    series, begin = cells.series[starts], cells.epoch[starts]
    return Segments(series, starts, stop, begin, end, moved, stop - starts, is_open)


def _bursts(cells: Cells, delta: int) -> Ints:
    """Places of the cells that begin a series or follow a gap."""
    if not len(cells):
        return np.empty(0, np.int64)
    breaks = (np.diff(cells.epoch) >= delta) | (np.diff(cells.series) != 0)
    return np.concatenate([[0], np.flatnonzero(breaks) + 1]).astype(np.int64)


def _merged(cells: Cells, starts: Ints, total: Ints, expected: Ints) -> Ints:
    """Of the begins of bursts those that begin an operator: the burst before them made its volume full.

    A burst leads to the first one by whose begin the expected bytes have moved, or to the first of the next series. Those that
    are reached from the first burst of each series begin operators; all series are followed at once.
    """
    target = total[starts] + expected[starts]
    ahead = np.searchsorted(total[starts], target, side="left")
    new_series = np.flatnonzero(np.append(True, np.diff(cells.series[starts]) != 0))
    limit = np.append(new_series[1:], len(starts))[np.cumsum(np.isin(np.arange(len(starts)), new_series)) - 1]
    ahead = np.maximum(np.minimum(ahead, limit), np.arange(len(starts)) + 1)
    chosen, at = np.zeros(len(starts), bool), new_series
    ends = limit[new_series]
    while len(at):
        chosen[at] = True
        at = ahead[at]
        at, ends = at[at < ends], ends[at < ends]
    return starts[chosen]


def quantile(cells: Cells, found: Segments, share: float) -> Ints:
    """Of each operator the number of bytes that a share of its epochs do not exceed; one number for each operator.

    One sort does, by operator and bytes as a single number: many times faster than a sort by two keys.
    """
    at: Ints = found.first + np.minimum((share * found.active).astype(np.int64), found.active - 1)
    bits = max(int(cells.bytes.max(initial=1)).bit_length(), 1)
    if bits + len(found).bit_length() > _BITS:
        return cells.bytes[np.lexsort((cells.bytes, np.repeat(np.arange(len(found)), found.active)))][at]
    key = (np.repeat(np.arange(len(found), dtype=np.int64), found.active) << bits) | cells.bytes
    key.sort()
    return key[at] & ((1 << bits) - 1)
