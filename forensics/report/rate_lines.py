"""Rate curves of NICs for a terminal: a line for what each sent, one for what it received, all with the same scales."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import ceil, floor, isnan

from forensics.model import Verdict
from forensics.report import times
from forensics.report.plain import brief
from forensics.report.rates import RateCurve, RateCurves, Rates, rate
from forensics.report.section import Item, Section

_SIGNS = ".:-=+*%#"
"""Nothing, then sevenths of the highest rate."""
_LOST, _OUTSIDE, _ONSET = "?", " ", "^"
_MARKER = 34
_MOST = 6
"""Captures that are shown."""
_NARROWEST, _WIDEST = 24, 160
_NAME = 12


def section(found: RateCurves, verdict: Verdict, width: int, most: int = _MOST) -> Section:
    """The curves of the first `most` captures, those of the suspect first; without items where there are none."""
    shown = RateCurves(found.curves[:most], found.left_out + len(found.curves[most:]))
    if not shown.curves:
        return Section("NIC RATES", ())
    room = max(_NARROWEST, min(width - _MARKER, _WIDEST))
    accused = verdict.suspects[0].ranks if verdict.suspects else ()
    lines = (line for curve in shown.curves for line in _lines(curve, shown, room, curve.rank in accused))
    return Section("NIC RATES", (*lines, *_legend(shown, verdict, room)))


def _lines(curve: RateCurve, found: RateCurves, room: int, is_accused: bool) -> Iterator[Item]:
    name = f"rank {curve.rank} {brief(curve.nic, _NAME)}{' *' if is_accused else ''}"
    yield Item("", f"{name} sent", drawing=_drawn(curve, curve.sent, found, room))
    yield Item("", "received".rjust(len(name) + 9), drawing=_drawn(curve, curve.received, found, room))


def _drawn(curve: RateCurve, values: Rates, found: RateCurves, room: int) -> str:
    begin, end = found.extent
    late = found.begin(curve) - begin
    edges = [(end - begin) * column / room - late for column in range(room + 1)]
    spans = [(max(floor(low / curve.span_ns), 0), max(ceil(high / curve.span_ns), 0)) for low, high in pairwise(edges)]
    return "".join(_sign(values[low:high], found.highest) for low, high in spans).rstrip()


def _sign(values: Rates, busiest: float) -> str:
    if not len(values):
        return _OUTSIDE
    highest = float(values.max())
    return _LOST if isnan(highest) else _SIGNS[ceil(highest / busiest * (len(_SIGNS) - 1))]


def _legend(found: RateCurves, verdict: Verdict, room: int) -> Iterator[Item]:
    begin, end = found.extent
    moment = found.marked(verdict.since)
    if moment is not None:
        place = min((moment - begin) * room // max(end - begin, 1), room - 1)
        yield Item(times.begins(verdict.outcome), drawing=" " * place + _ONSET + " ")
    more = f"; {found.left_out} more captures" if found.left_out else ""
    suspect = "; * suspect" if any(curve.rank in each.ranks for each in verdict.suspects[:1] for curve in found.curves) else ""
    column = f"a column is {times.duration((end - begin) // room)}, its sign the rate while something moves"
    yield Item(f"{column}: . nothing, # {rate(found.highest)}, ? lost{suspect}{more}")
