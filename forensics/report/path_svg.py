"""The trace graph of the slowest step as a drawing: stages over time, critical path and late passes marked.

As VenusTrace shows its graphs (figures 15 and 16): a box a pass with its microbatch, critical ones outlined and joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from forensics.model import CriticalPathRow, PassRow
from forensics.report import ranks, times
from forensics.report.drawing import Drawing
from forensics.report.gantt import described, key
from forensics.report.markup import Attribute, tag

_LEFT, _TOP, _ROW, _BOX = 150, 60, 34, 22
_WIDTH = 1200
_LEAST_LABEL = 14.0


def drawn(path: CriticalPathRow) -> Drawing:
    """The graph of the pipeline that took longest; a title alone where it has too many passes to be shown."""
    stages = sorted({row.stage for row in path.passes})
    height = _TOP + _ROW * len(stages) + 50
    body = (*_titles(path), *_stages(path, stages), *_passes(path, stages), *_path(path, stages), *_axis(path, height))
    return Drawing(_LEFT + _WIDTH + 20, height, _title(path), body)


def _title(path: CriticalPathRow) -> str:
    took = f"{times.duration(path.makespan_ns)}, {times.duration(path.expected_makespan_ns)} expected"
    return f"critical path of the slowest step: {took}, {times.duration(path.recoverable_ns)} recoverable"


def _titles(path: CriticalPathRow) -> Iterator[str]:
    yield tag("text", _title(path), x=10, y=20, font_size=13)
    legend = "blue forward, green backward; outlined: on the critical path; red: late; yellow: absorbed by bubbles"
    yield tag("text", legend, x=10, y=40)


def _stages(path: CriticalPathRow, stages: Sequence[int]) -> Iterator[str]:
    for place, stage in enumerate(stages):
        own = next(row.ranks for row in path.passes if row.stage == stage)
        y = _TOP + place * _ROW
        yield tag("text", f"stage {stage} [{ranks.fold(own, 2)}]", x=10, y=y + 15)
        yield tag("line", class_="faint", x1=_LEFT, y1=y + _BOX, x2=_LEFT + _WIDTH, y2=y + _BOX)


def _passes(path: CriticalPathRow, stages: Sequence[int]) -> Iterator[str]:
    critical, absorbed = ({key(row) for row in rows} for rows in (path.nodes, path.absorbed))
    for row in path.passes:
        x, y, width = _box(row, path, stages)
        kind = "late" if row.is_late else "absorbed" if key(row) in absorbed else row.direction
        marked = " marked" if key(row) in critical else ""
        box: dict[str, Attribute] = {"x": f"{x:.1f}", "y": y, "width": f"{width:.1f}", "height": _BOX}
        yield tag("rect", tag("title", described(row)), class_=kind + marked, **box)
        if width >= _LEAST_LABEL:
            yield tag("text", str(row.microbatch), x=f"{x + 3:.1f}", y=y + 15, font_size=10)


def _path(path: CriticalPathRow, stages: Sequence[int]) -> Iterator[str]:
    """A line from each pass of the path to the next one that begins when it is done, where that is on another stage."""
    shown = {key(row) for row in path.passes}
    rows = sorted((row for row in path.nodes if key(row) in shown), key=lambda row: (row.begin_ns, row.stage))
    for one, other in pairwise(rows):
        if one.stage != other.stage:
            (x, y, width), (to_x, to_y, _) = (_box(row, path, stages) for row in (one, other))
            ends: dict[str, Attribute] = {
                "x1": f"{x + width:.1f}",
                "y1": y + _BOX / 2,
                "x2": f"{to_x:.1f}",
                "y2": to_y + _BOX / 2,
            }
            yield tag("line", stroke_width=1.5, **ends)


def _box(row: PassRow, path: CriticalPathRow, stages: Sequence[int]) -> tuple[float, int, float]:
    scale = _WIDTH / max(path.makespan_ns, 1)
    return _LEFT + row.begin_ns * scale, _TOP + stages.index(row.stage) * _ROW, max(row.duration_ns * scale, 1.0)


def _axis(path: CriticalPathRow, height: int) -> Iterator[str]:
    for moment in times.marks(path.makespan_ns):
        x = _LEFT + _WIDTH * moment / max(path.makespan_ns, 1)
        yield tag("text", times.duration(moment), x=f"{x:.1f}", y=height - 15, text_anchor="middle")
