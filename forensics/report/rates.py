"""How fast NICs sent and received over time, by their captures (docs/formats/nic-epochs.md): for the reports.

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

from forensics.model import Since
from forensics.report.times import is_realtime
from forensics.rules.reductions.epochs.captures import NicCapture, nic_captures
from forensics.rules.reductions.epochs.cells import DIRECTIONS, FASTEST
from forensics.rules.reductions.epochs.operators import MovedByNic, NicOperators
from forensics.rules.reductions.ranks.nic_users import captured_users, nic_users

MOST_CURVES = 12
POINTS = 300
"""Points of the longest curve; each stands for neighbouring epochs."""

Rates = npt.NDArray[np.float64]
Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class RateCurve:
    """Bytes per second while something moves, in spans of `span_ns` from `begin_ns` on (CLOCK_REALTIME of the host; None: not
    stated): the rate at which the average byte moved, 0 where none did, NaN lost.

    How long nothing moved does not count: a NIC that is slow while it has work shows beside others that rest as long as it
    does not. Messages of a hundred bytes that grant buffers hardly count either.
    """

    rank: int
    host: str | None
    nic: str
    begin_ns: int | None
    span_ns: int
    sent: Rates
    received: Rates
    operators: Spans = ()
    """Begin and end of what it sent for one operator after the other, in ns since `begin_ns`; those that overlap are one."""

    def __len__(self) -> int:
        return len(self.sent)


@dataclass(frozen=True, slots=True)
class RateCurves:
    """Curves of the captures that are shown, and how many are not."""

    curves: tuple[RateCurve, ...] = ()
    left_out: int = 0

    @property
    def is_dated(self) -> bool:
        """Whether all of them have CLOCK_REALTIME; else each begins at 0."""
        return all(curve.begin_ns is not None for curve in self.curves)

    def begin(self, curve: RateCurve) -> int:
        """Where one of them begins on the axis of all, in ns."""
        return (curve.begin_ns or 0) if self.is_dated else 0

    @property
    def extent(self) -> tuple[int, int]:
        """Begin and end of the axis of all, in ns."""
        ends = [self.begin(curve) + len(curve) * curve.span_ns for curve in self.curves]
        return min(map(self.begin, self.curves), default=0), max(ends, default=0)

    @property
    def highest(self) -> float:
        """The highest rate of all, in bytes per second; 1 where nothing was moved."""
        rates = (each for curve in self.curves for each in (curve.sent, curve.received))
        return float(np.nanmax(np.concatenate([np.zeros(1), *rates]))) or 1.0

    def marked(self, since: Since | None) -> int | None:
        """The moment that an onset has on the axis of all; None where it is on another clock, or not on the axis."""
        begin, end = self.extent
        known = since is not None and is_realtime(since) and self.is_dated and begin <= since.time_ns <= end
        return since.time_ns if since is not None and known else None


NO_CURVES = RateCurves()
_UNITS = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))


def rate(value: float) -> str:
    """Bytes per second in the unit that fits: `12.5 GB/s`."""
    for size, unit in _UNITS:
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} B/s"


_SUMS = """
WITH cells AS (
    SELECT direction, first_epoch + generate_subscripts(values, 1) - 1 AS epoch, unnest(values) AS bytes
    FROM nic_epochs WHERE source_id = $source AND capture_id = $capture
), moved AS (
    SELECT direction, epoch, sum(bytes)::DOUBLE AS bytes FROM cells
    WHERE epoch >= $first AND epoch < $end AND bytes BETWEEN 1 AND $most GROUP BY direction, epoch
)
SELECT direction, (epoch - $first) // $size AS point, sum(bytes * bytes) / sum(bytes) FROM moved
GROUP BY direction, point ORDER BY direction, point
"""


def rate_curves(connection: DuckDBPyConnection, accused: Collection[int], operators: NicOperators | None = None) -> RateCurves:
    """Curves of at most `MOST_CURVES` captures, those of the `accused` ranks first, then in the order of ranks."""
    stated = [each for each in nic_captures(connection, captured_users(nic_users(connection))) if each.is_dated]
    order = sorted(stated, key=lambda each: (each.rank not in accused, each.rank, each.path, each.capture_id))
    shown = order[:MOST_CURVES]
    span_ns = max((each.epochs or 0) * each.epoch_ns for each in shown) // POINTS if shown else 0
    spans = {(each.capture.source_id, each.capture.capture_id): _spans(each) for each in operators or ()}
    curves = (_curve(connection, each, span_ns, spans.get((each.source_id, each.capture_id), ())) for each in shown)
    return RateCurves(tuple(curves), len(order) - len(shown))


def _spans(moved: MovedByNic) -> Spans:
    sent = [each for each in moved.nics if each.direction == "send" and len(each.begin)]
    if not sent:
        return ()
    begins, ends = (np.concatenate([getattr(each, name) for each in sent]) for name in ("begin", "end"))
    order = np.argsort(begins, kind="stable")
    begins, reached = begins[order], np.maximum.accumulate(ends[order])
    new = np.flatnonzero(np.append(True, begins[1:] > reached[:-1]))
    last = np.append(new[1:], len(begins)) - 1
    edges = (np.stack((begins[new], reached[last] + 1), axis=1) - (moved.capture.first or 0)) * moved.capture.epoch_ns
    return tuple((int(begin), int(end)) for begin, end in edges)


def _curve(connection: DuckDBPyConnection, capture: NicCapture, span_ns: int, operators: Spans) -> RateCurve:
    """Means over at least `span_ns`, the same for all: the peak of a burst is as high as the span is short."""
    first, epochs = capture.first or 0, capture.epochs or 1
    size = max(-(-span_ns // capture.epoch_ns), 1)
    points = -(-epochs // size)
    rates = {direction: np.zeros(points) for direction in DIRECTIONS}
    asked = {"source": capture.source_id, "capture": capture.capture_id, "first": first, "end": first + epochs, "size": size}
    rows = connection.execute(_SUMS, {**asked, "most": capture.epoch_ns * FASTEST}).fetchall()
    for direction, point, moved in rows:
        if direction in rates:
            rates[direction][int(point)] = moved / capture.epoch_ns * 1e9
    holes = _holes(connection, capture, first, size, points)
    sent, received = (np.where(holes, np.nan, rates[direction]) for direction in DIRECTIONS)
    begin = first * capture.epoch_ns if capture.clock == "realtime" else None
    return RateCurve(capture.rank, capture.host, capture.nic, begin, size * capture.epoch_ns, sent, received, operators)


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
