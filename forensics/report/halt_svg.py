"""The incomplete graph of a pipeline that stopped as a drawing: a box a pass with its microbatch (VenusTrace, figure 15).

Lines join each pass that waits to those of other stages that it waits for, so that they lead back to where it halted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from forensics.incomplete_graphs import COMPLETE, HALTED
from forensics.model import GraphPassRow, IncompleteGraphRow
from forensics.report import ranks
from forensics.report.drawing import Drawing
from forensics.report.halt_chart import described
from forensics.report.markup import Attribute, tag

_LEFT, _TOP, _ROW, _BOX = 150, 60, 34, 22
_COLUMN, _NARROWEST, _WIDTH = 26, 3, 1200
_LEAST_LABEL = 14


def drawn(graph: IncompleteGraphRow) -> Drawing:
    """The graph; its title alone where it has too many passes to be shown."""
    stages = sorted({row.stage for row in graph.passes})
    turns = max((row.turn for row in graph.passes), default=0) + 1
    column = max(_NARROWEST, min(_COLUMN, _WIDTH // turns))
    body = (*_titles(graph), *_stages(graph, stages, column * turns), *_waits(graph, stages, column))
    boxes = tuple(part for row in graph.passes for part in _pass(row, stages, column))
    return Drawing(max(_LEFT + column * turns, _WIDTH) + 20, _TOP + _ROW * len(stages) + 20, _title(graph), (*body, *boxes))


def _title(graph: IncompleteGraphRow) -> str:
    where = "; ".join(described(row) for row in graph.halted[:2])
    return f"incomplete graph: {graph.complete} of {graph.of} passes are complete, halted at {where}"


def _titles(graph: IncompleteGraphRow) -> Iterator[str]:
    yield tag("text", _title(graph), x=10, y=20, font_size=13)
    legend = "blue forward, green backward: complete; red: halted; grey: waits, joined to what it waits for on other stages"
    yield tag("text", f"{legend}; a column is a turn, not a time", x=10, y=40)


def _stages(graph: IncompleteGraphRow, stages: Sequence[int], width: int) -> Iterator[str]:
    for place, stage in enumerate(stages):
        own = next(row.ranks for row in graph.passes if row.stage == stage)
        y = _TOP + place * _ROW
        yield tag("text", f"stage {stage} [{ranks.fold(own, 2)}]", x=10, y=y + 15)
        yield tag("line", class_="faint", x1=_LEFT, y1=y + _BOX, x2=_LEFT + width, y2=y + _BOX)


def _waits(graph: IncompleteGraphRow, stages: Sequence[int], column: int) -> Iterator[str]:
    for row in graph.passes:
        x, y = _corner(row, stages, column)
        for other in (graph.passes[place] for place in row.waits_for):
            if other.stage != row.stage:
                from_x, from_y = _corner(other, stages, column)
                ends: dict[str, Attribute] = {"x1": from_x + column, "y1": from_y + _BOX / 2, "x2": x, "y2": y + _BOX / 2}
                yield tag("line", class_="faint", **ends)


def _pass(row: GraphPassRow, stages: Sequence[int], column: int) -> Iterator[str]:
    x, y = _corner(row, stages, column)
    kind = row.direction if row.state == COMPLETE else "late marked" if row.state == HALTED else "unknown"
    said = f"{described(row)}: {row.state}"
    yield tag("rect", tag("title", said), class_=kind, x=x, y=y, width=column - 1, height=_BOX)
    if column >= _LEAST_LABEL:
        yield tag("text", str(row.microbatch), x=x + 3, y=y + 15, font_size=10)


def _corner(row: GraphPassRow, stages: Sequence[int], column: int) -> tuple[int, int]:
    return _LEFT + row.turn * column, _TOP + stages.index(row.stage) * _ROW
