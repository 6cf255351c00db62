"""The trace graph of the slowest step as one self-contained SVG: stages over time, critical path and late passes marked.

As VenusTrace shows its graphs (figures 15 and 16): a box a pass with its microbatch, critical ones outlined and joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise

from forensics.model import CriticalPathRow, PassRow
from forensics.report import ranks, times
from forensics.report.gantt import described, key
from forensics.report.plain import plain

_LEFT, _TOP, _ROW, _BOX = 120, 60, 34, 22
_WIDTH = 1200
_FILL = {"forward": "#9ec5e8", "backward": "#a8d5a2"}
_LATE, _ABSORBED = "#e05a47", "#f2c14e"
_LEAST_LABEL = 14.0


def render(path: CriticalPathRow) -> str:
    """The graph of the pipeline that took longest; a title alone where it has too many passes to be shown."""
    stages = sorted({row.stage for row in path.passes})
    height = _TOP + _ROW * len(stages) + 50
    width = _LEFT + _WIDTH + 20
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="11">'
    body = (*_titles(path), *_stages(path, stages), *_passes(path, stages), *_path(path, stages), *_axis(path, height))
    return "\n".join((head, '<rect width="100%" height="100%" fill="white"/>', *body, "</svg>")) + "\n"


def _titles(path: CriticalPathRow) -> Iterator[str]:
    took = f"{times.duration(path.makespan_ns)}, {times.duration(path.expected_makespan_ns)} expected"
    title = f"critical path of the slowest step: {took}, {times.duration(path.recoverable_ns)} recoverable"
    yield f'<text x="10" y="20" font-size="13">{escape(plain(title))}</text>'
    legend = "blue forward, green backward; black: on the critical path; red: late; yellow: absorbed by bubbles"
    yield f'<text x="10" y="40">{escape(legend)}</text>'


def _stages(path: CriticalPathRow, stages: Sequence[int]) -> Iterator[str]:
    for place, stage in enumerate(stages):
        own = next(row.ranks for row in path.passes if row.stage == stage)
        y = _TOP + place * _ROW
        who = ranks.fold(own, 3)
        yield f'<text x="10" y="{y + 15}">stage {stage} [{escape(plain(who))}]</text>'
        yield f'<line x1="{_LEFT}" y1="{y + _BOX}" x2="{_LEFT + _WIDTH}" y2="{y + _BOX}" stroke="#ddd"/>'


def _passes(path: CriticalPathRow, stages: Sequence[int]) -> Iterator[str]:
    critical, absorbed = ({key(row) for row in rows} for rows in (path.nodes, path.absorbed))
    for row in path.passes:
        x, y, width = _box(row, path, stages)
        fill = _LATE if row.is_late else _ABSORBED if key(row) in absorbed else _FILL[row.direction]
        edge = ' stroke="black" stroke-width="2"' if key(row) in critical else ' stroke="#888" stroke-width="0.5"'
        box = f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BOX}" fill="{fill}"{edge}>'
        label = f'<text x="{x + 3:.1f}" y="{y + 15}" font-size="10">{row.microbatch}</text>' if width >= _LEAST_LABEL else ""
        yield f"{box}<title>{escape(plain(described(row)))}</title></rect>{label}"


def _path(path: CriticalPathRow, stages: Sequence[int]) -> Iterator[str]:
    """A line from each pass of the path to the next one that begins when it is done, where that is on another stage."""
    shown = {key(row) for row in path.passes}
    rows = sorted((row for row in path.nodes if key(row) in shown), key=lambda row: (row.begin_ns, row.stage))
    for one, other in pairwise(rows):
        if one.stage != other.stage:
            (x, y, width), (to_x, to_y, _) = (_box(row, path, stages) for row in (one, other))
            ends = f'x1="{x + width:.1f}" y1="{y + _BOX / 2}" x2="{to_x:.1f}" y2="{to_y + _BOX / 2}"'
            yield f'<line {ends} stroke="black" stroke-width="1.5"/>'


def _box(row: PassRow, path: CriticalPathRow, stages: Sequence[int]) -> tuple[float, int, float]:
    scale = _WIDTH / max(path.makespan_ns, 1)
    return _LEFT + row.begin_ns * scale, _TOP + stages.index(row.stage) * _ROW, max(row.duration_ns * scale, 1.0)


def _axis(path: CriticalPathRow, height: int) -> Iterator[str]:
    for part in range(5):
        x, moment = _LEFT + _WIDTH * part // 4, path.makespan_ns * part // 4
        yield f'<text x="{x}" y="{height - 15}" text-anchor="middle">{times.duration(moment)}</text>'
