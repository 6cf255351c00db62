"""The passes of the step in which a pipeline stopped as a chart: one line a stage, one letter a pass, in the order of a step.

The column of a pass is its turn in a step whose passes all take equally long: nothing dates passes that were never made.
"""

from __future__ import annotations

from collections.abc import Iterator

from forensics.incomplete_graphs import COMPLETE, HALTED
from forensics.model import GraphPassRow, IncompleteGraphRow
from forensics.report import ranks

_LEGEND = "f forward, b backward: complete; X halted; - waits for it; . no pass"
_SHOWN, _MOST_STAGES = 3, 16
# Of the columns, those before the first halted pass where not all turns fit.
_BEFORE = 0.7


def lines(graph: IncompleteGraphRow, width: int, all_stages: bool = False) -> Iterator[tuple[str, str, str]]:
    """(marker, text, drawing) of each line: what is complete, where it halted, a line a stage, the legend."""
    yield from ((marker, text, "") for marker, text in words(graph))
    if not graph.passes:
        return
    first, end = _turns(graph, width)
    stages = _nearest(graph)
    shown = stages if all_stages else stages[:_MOST_STAGES]
    for stage in sorted(shown):
        yield f"stage {stage}", "", _drawn([row for row in graph.passes if row.stage == stage], first, end)
    last = max(row.turn for row in graph.passes) + 1
    part = f"turns {first} to {end - 1} of {last}; " if end - first < last else ""
    left = len(stages) - len(shown)
    rest = f"(+{left} stages, --all-ranks) " if left else ""
    yield "", f"{rest}{part}{_LEGEND}", ""


def words(graph: IncompleteGraphRow) -> Iterator[tuple[str, str]]:
    """(marker, text) of each line beside the chart."""
    yield "", f"{graph.complete} of {graph.of} passes of the step are complete"
    yield from (("halted", described(row)) for row in graph.halted[:_SHOWN])
    if len(graph.halted) > _SHOWN:
        yield "halted", f"(+{len(graph.halted) - _SHOWN} more passes)"


def described(row: GraphPassRow) -> str:
    """A pass in words."""
    chunk = "" if row.model_chunk is None else f", chunk {row.model_chunk}"
    return f"{row.direction} of microbatch {row.microbatch}{chunk} on stage {row.stage} ({ranks.phrase(row.ranks, most=4)})"


def _nearest(graph: IncompleteGraphRow) -> list[int]:
    """The stages, those nearest to a halted pass first."""
    halted = {row.stage for row in graph.halted} or {0}
    stages = {row.stage for row in graph.passes}
    return sorted(stages, key=lambda stage: (min(abs(stage - each) for each in halted), stage))


def _turns(graph: IncompleteGraphRow, width: int) -> tuple[int, int]:
    """The first turn that is shown, and the one behind the last: all of them, or those around the first halted pass."""
    last = max(row.turn for row in graph.passes) + 1
    first = min((row.turn for row in graph.halted), default=0) - int(_BEFORE * width)
    first = max(0, min(first, last - width))
    return first, min(last, first + max(width, 1))


def _drawn(rows: list[GraphPassRow], first: int, end: int) -> str:
    cells = ["."] * (end - first)
    for row in rows:
        if first <= row.turn < end:
            cells[row.turn - first] = _letter(row)
    return "".join(cells)


def _letter(row: GraphPassRow) -> str:
    if row.state == COMPLETE:
        return "f" if row.direction == "forward" else "b"
    return "X" if row.state == HALTED else "-"
