"""The heat of ranks and stages as one self-contained SVG: excess over the peers, the losses that were found outlined."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from math import log1p

from forensics.model import FrontierRow
from forensics.report import ranks, times
from forensics.report.plain import plain

_LEFT, _TOP, _WIDTH, _HEIGHT = 90, 60, 92, 16
_MOST_RANKS = 512


def render(rows: tuple[FrontierRow, ...]) -> str:
    """One panel for each window, below each other."""
    panels: list[str] = []
    top = 0
    width = 320
    for row in rows:
        panels += _panel(row, top)
        top += _TOP + _HEIGHT * min(len(row.ranks), _MOST_RANKS) + 30
        width = max(width, _LEFT + _WIDTH * len(row.stages) + 20)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}" font-family="sans-serif" font-size="11">'
    return "\n".join((head, '<rect width="100%" height="100%" fill="white"/>', *panels, "</svg>")) + "\n"


def _panel(row: FrontierRow, top: int) -> Iterator[str]:
    losses = "; ".join(
        f"{loss.stage} on {ranks.phrase(loss.ranks, most=4) if loss.ranks else 'no single rank'} ({loss.share:.0%})"
        for loss in row.attribution.losses
    )
    title = f"{row.group}, steps {row.first_step}-{row.last_step}: {losses or 'no material loss'}"
    yield f'<text x="10" y="{top + 20}" font-size="13">{escape(plain(title))}</text>'
    for place, stage in enumerate(row.stages):
        share = f" {row.shares[place]:.0%}" if row.shares else ""
        yield f'<text x="{_LEFT + place * _WIDTH + 4}" y="{top + _TOP - 8}">{escape(plain(stage))}{share}</text>'
    hottest = max((value for values in row.excess_ns for value in values), default=0) or 1
    outlined = {(rank, loss.stage) for loss in row.attribution.losses for rank in loss.ranks}
    for line, rank in enumerate(row.ranks[:_MOST_RANKS]):
        y = top + _TOP + line * _HEIGHT
        yield f'<text x="10" y="{y + 12}">rank {rank}</text>'
        for place, stage in enumerate(row.stages):
            yield _cell(_LEFT + place * _WIDTH, y, row.excess_ns[line][place], hottest, (rank, stage) in outlined)


def _cell(x: int, y: int, value: int, hottest: int, is_culprit: bool) -> str:
    heat = log1p(9 * value / hottest) / log1p(9)
    colour = f"rgb(255,{round(250 - 190 * heat)},{round(240 - 210 * heat)})"
    edge = ' stroke="black" stroke-width="2"' if is_culprit else ' stroke="#ddd"'
    box = f'<rect x="{x}" y="{y}" width="{_WIDTH - 2}" height="{_HEIGHT - 2}" fill="{colour}"{edge}>'
    shown = times.duration(value)
    text = f'<text x="{x + 4}" y="{y + 11}" font-size="10">{shown}</text>' if 20 * value >= hottest and value else ""
    return f"{box}<title>{shown} above its peers</title></rect>{text}"
