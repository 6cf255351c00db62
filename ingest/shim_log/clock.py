"""Ticks of a shim log as CLOCK_REALTIME (docs/formats/shim-log.md, clock table)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from forensics.ingest.shim_log import layout
from forensics.ingest.shim_log.file import ShimFile, Table

TICKS_MONOTONIC = 3
Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Clock:
    """Readings by rising tick; `ticks` and `realtime_ns` are equally long, and empty when nothing can be converted.

    `slopes` are nanoseconds per tick between two readings.
    """

    ticks: Array
    realtime_ns: Array
    slopes: npt.NDArray[np.float64]

    @property
    def ns_per_tick(self) -> float | None:
        """Length of a tick over all readings; None when there is one reading only."""
        if len(self.ticks) < 2:
            return None
        return float(self.realtime_ns[-1] - self.realtime_ns[0]) / float(self.ticks[-1] - self.ticks[0])

    def realtime(self, ticks: npt.NDArray[np.uint64]) -> tuple[Array, npt.NDArray[np.bool_]]:
        """CLOCK_REALTIME (ns) of each tick, and where there is none: tick 0, or no readings."""
        known = ticks.astype(np.int64)
        nothing = known <= 0
        if len(self.ticks) < 2:
            return np.zeros(len(known), np.int64), np.ones(len(known), np.bool_)
        piece = _within(np.searchsorted(self.ticks, known, side="right") - 1, 0, len(self.ticks) - 2)
        since = _within((known - self.ticks[piece]) * self.slopes[piece], -9e17, 9e17)
        return np.where(nothing, 0, self.realtime_ns[piece] + since.astype(np.int64)), nothing

    def length(self, ticks: npt.NDArray[np.float64]) -> tuple[Array, npt.NDArray[np.bool_]]:
        """Durations in nanoseconds."""
        rate = self.ns_per_tick
        if rate is None:
            return np.zeros(ticks.shape, np.int64), np.ones(ticks.shape, np.bool_)
        sound = np.fmin(np.fmax(ticks * rate, 0.0), 9e17)  # nothing, where it is no number
        return sound.astype(np.int64), np.zeros(ticks.shape, np.bool_)


def _within(values: npt.NDArray[Any], least: float, most: float) -> npt.NDArray[Any]:
    """The values within limits: `clip` takes several times as long for some hundred of them."""
    found: npt.NDArray[Any] = np.minimum(np.maximum(values, least), most)
    return found


def read_clock(log: ShimFile) -> tuple[Clock, Table]:
    """The clock of a log, and its readings as they stand."""
    table = log.tables.get(layout.CLOCKS)
    readings = [table[(table["layout"] == 1) & (table["attempts"] > 0)]] if table is not None else []
    last = log.live["last_clock"]
    if int(log.live["beat_version"]) % 2 == 0 and int(last["layout"]) == 1:
        readings.append(np.array([last], dtype=last.dtype))
    found = np.concatenate(readings) if readings else np.zeros(0, layout.CLOCK)
    is_monotonic = int(log.head["ticks"]) == TICKS_MONOTONIC
    ticks = found["monotonic_ns"].astype(np.int64) if is_monotonic else found["counter"].astype(np.int64)
    order = np.unique(ticks, return_index=True)[1]
    ticks, realtime = ticks[order], found["realtime_ns"][order].astype(np.int64)
    if is_monotonic and len(ticks) == 1:  # a second one, as the length of these ticks is known
        ticks, realtime = np.append(ticks, ticks + 1_000_000_000), np.append(realtime, realtime + 1_000_000_000)
    return Clock(ticks, realtime, np.diff(realtime) / np.diff(ticks)), found[order]
