"""How fast NICs sent and received over time, by their captures (docs/formats/nic-epochs.md): for the page of a verdict.

Only captures that say which epochs they cover are read, as an epoch in no run is then one without bytes; lost ranges are
holes. Of many captures those of the suspects come first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import orjson
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.epochs.captures import NicCapture, nic_captures
from forensics.rules.reductions.epochs.cells import DIRECTIONS, FASTEST
from forensics.rules.reductions.ranks.nic_users import nic_users

MOST_CURVES = 12
POINTS = 300
"""Points of the longest curve; each is the mean of neighbouring epochs."""

Rates = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RateCurve:
    """Mean bytes per second in spans of `span_ns` from `begin_ns` on (CLOCK_REALTIME of the host; None: not told), NaN lost."""

    rank: int
    host: str | None
    nic: str
    begin_ns: int | None
    span_ns: int
    sent: Rates
    received: Rates

    def __len__(self) -> int:
        return len(self.sent)


@dataclass(frozen=True, slots=True)
class RateCurves:
    """Curves of the captures that are shown, and how many are not."""

    curves: tuple[RateCurve, ...] = ()
    left_out: int = 0


_SUMS = """
WITH cells AS (
    SELECT direction, first_epoch + generate_subscripts(values, 1) - 1 AS epoch, unnest(values) AS bytes
    FROM nic_epochs WHERE source_id = ? AND capture_id = ?
)
SELECT direction, (epoch - ?) // ? AS point, sum(bytes)::DOUBLE FROM cells
WHERE epoch >= ? AND epoch < ? AND bytes BETWEEN 1 AND ?
GROUP BY direction, point ORDER BY direction, point
"""


def rate_curves(connection: DuckDBPyConnection, accused: Collection[int], most: int = MOST_CURVES) -> RateCurves:
    """Curves of at most `most` captures, those of the `accused` ranks first, then in the order of ranks."""
    told = [each for each in nic_captures(connection, nic_users(connection)) if each.is_dated]
    order = sorted(told, key=lambda each: (each.rank not in accused, each.rank, each.path, each.capture_id))
    span_ns = max((each.epochs or 0) * each.epoch_ns for each in order[:most]) // POINTS if order else 0
    curves = tuple(_curve(connection, each, span_ns) for each in order[:most])
    return RateCurves(curves, len(order) - len(curves))


def _curve(connection: DuckDBPyConnection, capture: NicCapture, span_ns: int) -> RateCurve:
    """Means over at least `span_ns`, the same for all: the peak of a burst is as high as the span is short."""
    first, epochs = capture.first or 0, capture.epochs or 1
    size = max(-(-span_ns // capture.epoch_ns), 1)
    points = -(-epochs // size)
    lengths = np.full(points, size * capture.epoch_ns, dtype=np.float64)
    lengths[-1] = (epochs - (points - 1) * size) * capture.epoch_ns
    sums = {direction: np.zeros(points) for direction in DIRECTIONS}
    asked = [capture.source_id, capture.capture_id, first, size, first, first + epochs, capture.epoch_ns * FASTEST]
    for direction, point, total in connection.execute(_SUMS, asked).fetchall():
        if direction in sums:
            sums[direction][int(point)] = total
    holes = _holes(connection, capture, first, size, points)
    sent, received = (np.where(holes, np.nan, sums[direction] / lengths * 1e9) for direction in DIRECTIONS)
    begin = first * capture.epoch_ns if capture.clock == "realtime" else None
    return RateCurve(capture.rank, capture.host, capture.nic, begin, size * capture.epoch_ns, sent, received)


def _holes(connection: DuckDBPyConnection, capture: NicCapture, first: int, size: int, points: int) -> npt.NDArray[np.bool_]:
    """Points in which an epoch was lost."""
    holes = np.zeros(points, dtype=np.bool_)
    for begin, count in _lost(connection, capture):
        low, high = max((begin - first) // size, 0), (begin + count - 1 - first) // size
        holes[low : max(high + 1, 0)] = True
    return holes


def _lost(connection: DuckDBPyConnection, capture: NicCapture) -> Iterator[tuple[int, int]]:
    asked = "SELECT lost FROM captures WHERE source_id = ? AND capture_id = ? AND lost IS NOT NULL"
    for (text,) in connection.execute(asked, [capture.source_id, capture.capture_id]).fetchall():
        ranges: Sequence[tuple[int, int]] = orjson.loads(text)
        yield from ((begin, count) for begin, count in ranges if count > 0)
