"""Lengths of steps by the lines that a trainer prints: the time that a line states, else the times between two of them.

Only lines that speak of training count (a loss, a rate, a learning rate), or bars that are named for nothing else. Where they
state other sizes of batch or sequence in between, steps become longer by that: nothing is said. Times to the second are taken
over ten of them at least.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of

_POINTS = """
SELECT p.source_id, p.rank, p.series, p.part, p.clock, p.step, p.at_s, p.stated_s, p.load, p.text, s.path
FROM log_progress p JOIN sources s USING (source_id) ORDER BY s.path, p.series, p.part, p.locator, p.step
"""
_TRAINS = re.compile(
    r"(?i)\b(?:train_)?(?:loss|lr|grad[_ ]?norm|learning[_ ]rate|tflops|mfu|consumed|tps|nll)\b|^(?:Epoch|Steps|Train)"
)
_BARE_BAR = re.compile(r"^ *\d{1,3}%\|")
# Name of a series whose lines have no number: they were counted.
_REPORTS = re.compile(r"\d+ report\b")
_LEAST_S = 10.0

_Point = tuple[int, float | None, float | None, str | None, str, str]
"""Step, time, stated length, sizes, line and log."""


@dataclass(frozen=True, slots=True)
class StepLines:
    """Lengths of steps in ns, with the number of the step at which each ended; `source` is the log.

    `unit` is what is numbered: steps, or the reports of a trainer that prints no step.
    """

    lengths: Sequence[float]
    steps: Sequence[int]
    source: str
    unit: str = "step"


def step_lines(connection: DuckDBPyConnection) -> Iterator[StepLines]:
    """Each part of each series that speaks of training."""
    parts: dict[tuple[object, ...], list[_Point]] = defaultdict(list)
    for source, rank, series, part, clock, *point in rows_of(connection, "log_progress", _POINTS):
        parts[source, rank, series, part, clock].append(tuple(point))
    for (_, _, series, *_), points in parts.items():
        _, _, _, _, text, source = points[-1]
        trains = _TRAINS.search(text) is not None or _BARE_BAR.match(text) is not None
        if trains and len({load for _, _, _, load, _, _ in points}) == 1:
            found = _stated(points) or _between(points)
            unit = "report" if _REPORTS.match(str(series)) else "step"
            yield StepLines([length * 1e9 for _, length in found], [step for step, _ in found], source, unit)


def _stated(points: Sequence[_Point]) -> list[tuple[int, float]]:
    """Lengths that each line states; numbers that only ever grow are times since the start, not lengths."""
    lengths = [(step, stated) for step, _, stated, *_ in points if stated is not None]
    grows = len(lengths) > 1 and all(one < two for (_, one), (_, two) in pairwise(lengths))
    return lengths if len(lengths) == len(points) and not grows else []


def _between(points: Sequence[_Point]) -> list[tuple[int, float]]:
    timed = [(step, at) for step, at, *_ in points if at is not None]
    whole = all(at == int(at) for _, at in timed)
    found: list[tuple[int, float]] = []
    last = timed[0] if timed else (0, 0.0)
    for step, at in timed[1:]:
        if step > last[0] and at > last[1] and (not whole or at - last[1] >= _LEAST_S):
            found.append((step, (at - last[1]) / (step - last[0])))
            last = step, at
    return found
