"""What a device did, by who asked for it: kernels belong to the stage in which the host launched them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


def nothing() -> Integers:
    """No times."""
    return np.empty(0, dtype=np.int64)


def holding(times: Integers, begins: Integers, ends: Integers) -> Integers:
    """Place of the interval that holds each time, its end excluded; -1 where none does. Begins are sorted, none overlap."""
    if not len(begins):
        return np.full(len(times), -1, dtype=np.int64)
    place = np.searchsorted(begins, times, side="right") - 1
    found: Integers = np.where((place >= 0) & (times < ends[np.maximum(place, 0)]), place, -1)
    return found


def partners(wanted: Integers, keys: Integers) -> Integers:
    """Place of the first equal key for each wanted one; -1 where there is none."""
    if not len(keys):
        return np.full(len(wanted), -1, dtype=np.int64)
    order = np.argsort(keys, kind="stable")
    place = order[np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)]
    found: Integers = np.where(keys[place] == wanted, place, -1)
    return found


@dataclass(frozen=True, slots=True)
class Intervals:
    """Begin and end in ns, sorted by begin."""

    begins: Integers = field(default_factory=nothing)
    ends: Integers = field(default_factory=nothing)

    @staticmethod
    def of(begins: Integers, ends: Integers) -> Intervals:
        """The same, sorted."""
        order = np.argsort(begins, kind="stable")
        return Intervals(begins[order], ends[order])

    def within(self, begin: int, end: int) -> tuple[int, int] | None:
        """First begin and last end of the intervals that lie within two times."""
        first, last = np.searchsorted(self.begins, [begin, end])
        inside = np.flatnonzero(self.ends[first:last] <= end) + first
        return (int(self.begins[inside[0]]), int(self.ends[inside].max())) if len(inside) else None


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """Work of one device without its collectives: when the host launched each piece, and when it ran (ns)."""

    launched: Integers
    begins: Integers
    ends: Integers

    def of_spans(self, begins: Sequence[int], durations: Sequence[int]) -> list[int]:
        """How long (ns) the device was busy with what the host launched in each span; work side by side counts once.

        Spans do not overlap. Collectives are left out because they last as long as the latest member makes them.
        """
        order = np.argsort(np.asarray(begins, dtype=np.int64), kind="stable")
        first = np.asarray(begins, dtype=np.int64)[order]
        last = first + np.asarray(durations, dtype=np.int64)[order]
        place = holding(self.launched, first, last)
        inside = place >= 0
        busy = np.zeros(len(first), dtype=np.int64)
        if inside.any():
            busy += _unions(place[inside], self.begins[inside], self.ends[inside], len(first))
        found = np.empty(len(first), dtype=np.int64)
        found[order] = busy
        return list(map(int, found))

    def outside(self, begins: Sequence[int], durations: Sequence[int]) -> DeviceWork:
        """What the host launched in none of some spans, which do not overlap."""
        order = np.argsort(np.asarray(begins, dtype=np.int64), kind="stable")
        first = np.asarray(begins, dtype=np.int64)[order]
        left = holding(self.launched, first, first + np.asarray(durations, dtype=np.int64)[order]) < 0
        return DeviceWork(self.launched[left], self.begins[left], self.ends[left])


def _unions(groups: Integers, begins: Integers, ends: Integers, count: int) -> Integers:
    """Length of the union of the intervals of each group."""
    order = np.lexsort((begins, groups))
    group, begin, end = groups[order], begins[order], ends[order]
    is_first = np.r_[True, group[1:] != group[:-1]]
    reached = begin.copy()
    # The running maximum of each group: groups are few, and each is one call.
    bounds = np.r_[np.flatnonzero(is_first), len(group)]
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        reached[low + 1 : high] = np.maximum.accumulate(end[low : high - 1])
    added = np.maximum(end - np.maximum(begin, reached), 0)
    return np.bincount(group, weights=added, minlength=count).astype(np.int64)
