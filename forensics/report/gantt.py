"""The passes of the slowest step as a chart of stages over time, for a terminal and any width.

One line a stage; the letter of a pass is repeated for as long as it took: lower case, upper case on the critical path, `#` and
`=` for a late one (backward). What stands in between is waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from forensics.model import CriticalPathRow, PassRow
from forensics.report import ranks, times

_LEGEND = "f forward, b backward, F B critical, # = late, . waits"
_NARROWEST, _WIDEST = 24, 160
_MOST_STAGES, _FEW_STAGES = 16, 3
_SHOWN = 3


def lines(path: CriticalPathRow, width: int, all_stages: bool = False) -> Iterator[tuple[str, str, str]]:
    """(marker, text, drawing) of each line: what the step took, a line a stage, late and absorbed passes, who is often late."""
    took, *passes = ((marker, text, "") for marker, text in words(path))
    yield took
    yield from chart(path, width, None if all_stages else _MOST_STAGES)
    yield from passes


def words(path: CriticalPathRow) -> Iterator[tuple[str, str]]:
    """(marker, text) of each line beside the chart: what the step took, late and absorbed passes, who is often late."""
    took = f"{times.duration(path.makespan_ns)} for the passes, {times.duration(path.expected_makespan_ns)} expected"
    step = f"slowest of {path.steps} dated slow steps" if path.steps > 1 else "the slow step"
    yield "", f"{step}: {took}; {times.duration(path.recoverable_ns)} recoverable, {_clocks(path)}"
    late = [row for row in path.nodes if row.is_late]
    yield from (("late", text) for text in _listed(late))
    yield from (("absorbed", f"{text}: cost nothing") for text in _listed(path.absorbed))
    for each in path.late_in[:_SHOWN] if path.steps > 1 else ():
        yield "often", f"{ranks.phrase(each.ranks, most=4)} late on the path in {each.steps} of {path.steps} slow steps"


def _clocks(path: CriticalPathRow) -> str:
    return "times of kernels" if all(row.clock == "kernel" for row in path.nodes) else "in part by when hosts came to calls"


def brief_lines(path: CriticalPathRow, width: int) -> Iterator[tuple[str, str, str]]:
    """The lines that fit a screen: what the step took, and the stages nearest to the late passes."""
    yield next(lines(path, width))
    yield from chart(path, width, _FEW_STAGES)


def chart(path: CriticalPathRow, width: int, most: int | None) -> Iterator[tuple[str, str, str]]:
    """The chart alone, of at most so many stages, its legend last; nothing where there are no passes to show."""
    if not path.passes or path.makespan_ns <= 0:
        return
    room = max(_NARROWEST, min(width, _WIDEST))
    critical = {key(row) for row in path.nodes}
    stages = sorted({row.stage for row in path.passes})
    shown = _nearest(stages, path)[:most]
    for stage in sorted(shown):
        own = [row for row in path.passes if row.stage == stage]
        yield f"stage {stage}", "", drawn(own, critical, path.makespan_ns, room)
    left = len(stages) - len(shown)
    rest = f"(+{left} stages, -v or --all-ranks) " if left else ""
    yield "", f"{rest}a column is {path.makespan_ns / room / 1e6:.0f} ms; {_LEGEND}", ""


def key(row: PassRow) -> tuple[tuple[int, ...], str, int | None, int]:
    """What shows a pass from all others."""
    return row.ranks, row.direction, row.model_chunk, row.microbatch


def _nearest(stages: Sequence[int], path: CriticalPathRow) -> list[int]:
    """The stages, those nearest to the late passes first."""
    late = {row.stage for row in path.nodes if row.is_late} or set(stages[:1])
    return sorted(stages, key=lambda stage: (min(abs(stage - each) for each in late), stage))


def drawn(rows: Iterable[PassRow], critical: set[tuple[tuple[int, ...], str, int | None, int]], end_ns: int, room: int) -> str:
    """One stage: each pass over the columns of its time, at least one; a late pass is not drawn over."""
    cells = ["."] * room
    for row in sorted(rows, key=lambda row: (row.is_late, row.begin_ns)):
        first = min(row.begin_ns * room // end_ns, room - 1)
        last = min(max((row.begin_ns + row.duration_ns) * room // end_ns, first + 1), room)
        cells[first:last] = _letter(row, key(row) in critical) * (last - first)
    return "".join(cells)


def _letter(row: PassRow, is_critical: bool) -> str:
    forward = row.direction == "forward"
    if row.is_late:
        return "#" if forward else "="
    letter = "f" if forward else "b"
    return letter.upper() if is_critical else letter


def _listed(rows: Sequence[PassRow]) -> Iterator[str]:
    """The passes that took longest beyond what was expected, and how many more there are."""
    for row in sorted(rows, key=lambda row: row.expected_ns - row.duration_ns)[:_SHOWN]:
        yield described(row)
    if len(rows) > _SHOWN:
        yield f"(+{len(rows) - _SHOWN} more passes)"


def described(row: PassRow) -> str:
    """A pass in words."""
    chunk = "" if row.model_chunk is None else f", chunk {row.model_chunk}"
    where = f"{row.direction} of microbatch {row.microbatch}{chunk} on stage {row.stage} ({ranks.phrase(row.ranks, most=4)})"
    took = f"{times.duration(row.duration_ns)}, expected {times.duration(row.expected_ns)}"
    return f"{where}: {took}, slack {times.duration(row.slack_ns)}"
