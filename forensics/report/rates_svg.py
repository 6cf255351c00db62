"""Rate curves of NICs as a drawing: one panel a capture, all with the same scales, lost epochs as gaps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from forensics.model import Verdict
from forensics.report import times
from forensics.report.drawing import Drawing
from forensics.report.markup import tag
from forensics.report.plain import brief
from forensics.report.rates import RateCurve, RateCurves, Rates, rate

_LEFT, _TOP, _WIDTH, _PANEL, _GAP = 190, 40, 900, 70, 16
_MOMENT = 200
"""Pixels that a date takes below the drawing."""
_NAME = 30
_MOST_OPERATORS = 300
"""Operators of a capture up to which one can be distinguished from the next."""
_BAR = 4


def drawn(found: RateCurves, verdict: Verdict) -> Drawing | None:
    """The drawing; None without curves. The begin of what went wrong is marked where captures and it have the same clock."""
    if not found.curves:
        return None
    accused = verdict.suspects[0].ranks if verdict.suspects else ()
    begin, end = found.extent
    body: list[str] = [*_title(found)]
    height = _TOP + len(found.curves) * (_PANEL + _GAP) + 30
    for place, curve in enumerate(found.curves):
        body += _panel(curve, _TOP + place * (_PANEL + _GAP), found, curve.rank in accused)
    body += _axis(begin, end, height)
    if (moment := found.marked(verdict.since)) is not None:
        body += _mark(_x(moment, begin, end), height, times.begins(verdict.outcome))
    return Drawing(_LEFT + _WIDTH + 30, height, "bytes per second of NICs while something moves, over time", tuple(body))


def _title(found: RateCurves) -> Iterator[str]:
    more = f"; (+{found.left_out} more captures)" if found.left_out else ""
    bars = ", the operators that it sent below it" if any(curve.operators for curve in found.curves) else ""
    yield tag(
        "text",
        f"bytes per second of each NIC while something moves, 0 to {rate(found.highest)}{bars}{more}",
        x=10,
        y=20,
        font_size=13,
    )
    yield tag("text", "sent", class_="send", x=_LEFT + _WIDTH - 110, y=20)
    yield tag("text", "received", class_="recv", x=_LEFT + _WIDTH - 60, y=20)


def _panel(curve: RateCurve, top: int, found: RateCurves, is_accused: bool) -> Iterator[str]:
    yield tag("text", f"rank {curve.rank}{' (suspect)' if is_accused else ''}", x=10, y=top + 26, font_size=12)
    yield tag("text", brief(" ".join(filter(None, (curve.host, curve.nic))), _NAME), x=10, y=top + 42)
    yield tag("line", class_="faint", x1=_LEFT, y1=top + _PANEL, x2=_LEFT + _WIDTH, y2=top + _PANEL)
    begin, end = found.extent
    yield from _bars(curve, found, top + _PANEL + _BAR)
    for kind, values in (("send", curve.sent), ("recv", curve.received)):
        for points in _runs(values, found.begin(curve), curve.span_ns, begin, end, top, found.highest):
            yield tag("polyline", class_=kind, points=points)


def _bars(curve: RateCurve, found: RateCurves, y: int) -> Iterator[str]:
    """A bar for each operator, so that one sees where it begins and ends."""
    if 0 < len(curve.operators) <= _MOST_OPERATORS:
        start = found.begin(curve)
        ends = ([_x(start + at, *found.extent) for at in span] for span in curve.operators)
        path = " ".join(f"M{left:.1f},{y} H{max(right - 0.5, left + 0.5):.1f}" for left, right in ends)
        yield tag("path", class_="send", d=path, stroke_width=_BAR)


def _runs(values: Rates, start: int, span: int, begin: int, end: int, top: int, highest: float) -> Iterator[str]:
    """Points of each run without a hole, as steps."""
    points: list[str] = []
    for place, value in enumerate(values):
        if np.isnan(value):
            if points:
                yield " ".join(points)
            points = []
            continue
        y = top + _PANEL * (1 - value / highest)
        left, right = (_x(start + at * span, begin, end) for at in (place, place + 1))
        points += (f"{left:.1f},{y:.1f}", f"{right:.1f},{y:.1f}")
    if points:
        yield " ".join(points)


def _x(time_ns: int, begin: int, end: int) -> float:
    return min(_LEFT + _WIDTH * (time_ns - begin) / max(end - begin, 1), _LEFT + _WIDTH)


def _axis(begin: int, end: int, height: int) -> Iterator[str]:
    """The first label is the moment itself, and takes the room of those beside it."""
    for at in times.marks(end - begin):
        x = _x(begin + at, begin, end)
        if at == 0:
            yield tag("text", times.utc(begin) if begin else "+0 ns", x=_LEFT, y=height - 10)
        elif x > _LEFT + _MOMENT:
            yield tag("text", f"+{times.duration(at)}", x=f"{x:.1f}", y=height - 10, text_anchor="middle")


def _mark(x: float, height: int, what: str) -> Iterator[str]:
    yield tag("line", x1=f"{x:.1f}", y1=_TOP - 8, x2=f"{x:.1f}", y2=height - 24, stroke_dasharray="4 3")
    yield tag("text", what, x=f"{x + 3:.1f}", y=_TOP - 2)
