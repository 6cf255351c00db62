"""The heat of ranks and stages as a drawing: excess over the peers, the losses that were found outlined.

Of a large job the hottest ranks and those with a loss have a line of their own; the others share lines, each with the
excess of its hottest rank, so that nothing hot is hidden.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log1p

from forensics.model import FrontierRow, LossRow
from forensics.report import drawing, ranks, times
from forensics.report.drawing import Drawing
from forensics.report.markup import Attribute, tag

_LEFT, _TOP, _WIDTH, _HEIGHT = 150, 60, 100, 16
_MOST_LINES = 64
"""Lines that fold a panel's ranks; ranks on their own come on top."""
_ALONE = 16
_PANELS = 12
# A share of the largest excess below which no number is written.
_SMALL = 20
# One part in so many of a step is in full colour at the least: where nothing is worse, jitter would be as red as a fault.
_JITTER = 20


@dataclass(frozen=True, slots=True)
class HeatLine:
    """Ranks that share a line: `excess_ns` of the hottest of them, by stage."""

    ranks: tuple[int, ...]
    excess_ns: tuple[int, ...]


def render(rows: tuple[FrontierRow, ...]) -> str:
    """One panel for each window, below each other, as a file."""
    return drawing.alone(drawn(rows))


def drawn(rows: tuple[FrontierRow, ...]) -> Drawing:
    """The same as a drawing."""
    body: list[str] = []
    top, width = 0, 700
    full_ns = max((_full_ns(row) for row in rows), default=1)
    for row in rows[:_PANELS]:
        lines = heat_lines(row)
        body += _panel(row, lines, top, full_ns)
        top += _TOP + _HEIGHT * len(lines) + 30
        width = max(width, _LEFT + _WIDTH * len(row.stages) + 20)
    if len(rows) > _PANELS:
        body.append(tag("text", f"(+{len(rows) - _PANELS} more windows)", x=10, y=top + 12))
        top += 24
    return Drawing(width, top, "time a step beyond that of the peers, by rank and stage", tuple(body))


def _full_ns(row: FrontierRow) -> int:
    """What is drawn in full colour, the same for all panels: the largest excess, but no jitter of a sound job."""
    hottest = max((value for values in row.excess_ns for value in values), default=0)
    return max(hottest, row.exposed_ns // max(row.steps, 1) // _JITTER, 1)


def heat_lines(row: FrontierRow, most: int = _MOST_LINES) -> list[HeatLine]:
    """The ranks of a window on at most `most` lines, and a few of their own."""
    count = len(row.ranks)
    size = -(-count // most)
    if size <= 1:
        return [HeatLine((rank,), row.excess_ns[place]) for place, rank in enumerate(row.ranks)]
    lost = {rank for loss in row.attribution.losses for rank in loss.ranks}
    order = sorted(range(count), key=lambda place: (row.ranks[place] not in lost, -max(row.excess_ns[place], default=0)))
    alone = set(order[:_ALONE])
    return [line for first in range(0, count, size) for line in _block(row, range(first, min(first + size, count)), alone)]


def _block(row: FrontierRow, places: range, alone: set[int]) -> Iterator[HeatLine]:
    yield from (HeatLine((row.ranks[place],), row.excess_ns[place]) for place in places if place in alone)
    rest = [place for place in places if place not in alone]
    if rest:
        hottest = tuple(map(max, zip(*(row.excess_ns[place] for place in rest), strict=True)))
        yield HeatLine(tuple(row.ranks[place] for place in rest), hottest)


def _panel(row: FrontierRow, lines: list[HeatLine], top: int, full_ns: int) -> Iterator[str]:
    losses = "; ".join(map(_loss, row.attribution.losses)) or "no material loss"
    title = f"{row.group}, steps {row.first_step}-{row.last_step}: {losses}"
    yield tag("text", title, x=10, y=top + 20, font_size=13)
    for place, stage in enumerate(row.stages):
        share = f" {row.shares[place]:.0%}" if row.shares else ""
        yield tag("text", f"{stage}{share}", x=_LEFT + place * _WIDTH + 4, y=top + _TOP - 8)
    outlined = {(rank, loss.stage) for loss in row.attribution.losses for rank in loss.ranks}
    for number, line in enumerate(lines):
        y = top + _TOP + number * _HEIGHT
        yield tag("text", _named(line), x=10, y=y + 12)
        for place, stage in enumerate(row.stages):
            marked = any((rank, stage) in outlined for rank in line.ranks)
            yield from _cell(_LEFT + place * _WIDTH, y, line.excess_ns[place], full_ns, marked)


def _named(line: HeatLine) -> str:
    if len(line.ranks) == 1:
        return f"rank {line.ranks[0]}"
    return f"{line.ranks[0]}-{line.ranks[-1]}, hottest of {len(line.ranks)}"


def _loss(loss: LossRow) -> str:
    who = ranks.phrase(loss.ranks, most=4) if loss.ranks else "no single rank"
    return f"{loss.stage} on {who} ({loss.share:.0%})"


def _cell(x: int, y: int, value: int, full_ns: int, is_culprit: bool) -> Iterator[str]:
    heat = log1p(9 * max(value, 0) / full_ns) / log1p(9)
    shown = times.duration(value)
    marked = " marked" if is_culprit else ""
    box: dict[str, Attribute] = {"x": x, "y": y, "width": _WIDTH - 2, "height": _HEIGHT - 2, "fill_opacity": f"{heat:.2f}"}
    yield tag("rect", tag("title", f"{shown} above its peers"), class_="heat" + marked, **box)
    if _SMALL * value >= full_ns:
        yield tag("text", shown, x=x + 4, y=y + 11, font_size=10)
