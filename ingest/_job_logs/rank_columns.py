"""Tables with a row for each step and a column for each rank, as dashboards export them.

`"Step","run - rank_0/forward_ms","run - rank_1/forward_ms"`: Weights & Biases puts the run in front, and two columns with the
least and the most of the points that it drew as one (`__MIN`, `__MAX`) behind each.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from forensics.ingest._shared.values import rank_number

SEPARATED = re.compile(r"[^,\t;]*(?:[,\t;][^,\t;]*){2,}")
"""A line of at least three cells, set off by commas, tabs or semicolons."""
_STEP = re.compile(r"(?i)(?:global[_ /]?|trainer[_ /]|train[_ /])?(?:step|_step|iter(?:ation)?)")
_RANK = re.compile(
    r"(?i)(?<![a-z])(?:(?P<other>local|node|group|[tpdecsmv]p|data|model|pipeline|tensor)[_. -]?)?rank[_./ =-]?(\d{1,7})(?!\d)"
)
_UNIT = re.compile(r"(?:\(|[-_ ])(m?s|sec|seconds)\)?$")
_DRAWN = ("__MIN", "__MAX")
_BOTH_PASSES = re.compile(r"(?i)(?<![a-z])(?:fwd|forward)[-_ ]?(?:and[-_ ]?)?(?:bwd|backward)")
_OWN_WORK = frozenset({"forward", "compute", "data"})
"""What ranks do alone: of one part of a step by itself others may hold a wait for a slow peer."""
_LEAST = 3
"""Ranks: of two that differ, either may be the odd one."""
_MS = {"ms": 1.0}

Found = list[tuple[str, float]]


class RankColumns(NamedTuple):
    """Where the step stands, and rank, kind and ms of the unit of each other column that counts; the number of all columns."""

    step: int
    columns: dict[int, tuple[int, str, float]]
    width: int

    def row(self, line: str) -> tuple[int, dict[int, Found]] | None:
        """Step, and the times of each rank that has all of its own; None for another line."""
        cells = _cells(line)
        if len(cells) != self.width or not cells[self.step].isdecimal() or len(cells[self.step]) > 12:
            return None
        found: dict[int, Found] = defaultdict(list)
        for at, (rank, kind, ms) in self.columns.items():
            if (value := _number(cells[at])) is not None:
                found[rank].append((kind, value * ms))
        return int(cells[self.step]), found


def rank_columns(line: str, kind_of: Callable[[str], str | None]) -> RankColumns | None:
    """The table that a line heads: the same times of at least three ranks, with a unit; `kind_of` shows the part of a step."""
    if "ank" not in line or not SEPARATED.fullmatch(line):
        return None
    cells = _cells(line)
    if not _STEP.fullmatch(cells[0]):
        return None
    columns = dict(_columns(cells, kind_of))
    kinds: dict[int, set[str]] = defaultdict(set)
    for rank, kind, _ in columns.values():
        kinds[rank].add(kind)
    same = {frozenset(each) for each in kinds.values()}
    if len(kinds) < _LEAST or len(same) != 1 or len(columns) != len(kinds) * len(*same):
        return None
    return RankColumns(0, columns, len(cells)) if len(*same) > 1 or frozenset(*same) <= _OWN_WORK else None


def _columns(cells: list[str], kind_of: Callable[[str], str | None]) -> Iterator[tuple[int, tuple[int, str, float]]]:
    for at, cell in enumerate(cells):
        said, unit = _RANK.search(cell), _UNIT.search(cell)
        if said is None or said["other"] or unit is None or cell.endswith(_DRAWN):
            continue
        rank, name = rank_number(said[2]), _name(cell, said)
        kind = "compute" if _BOTH_PASSES.search(name) else kind_of(name)
        if rank is not None and kind is not None:
            yield at, (rank, kind, _MS.get(unit[1], 1000.0))


def _name(cell: str, said: re.Match[str]) -> str:
    """What was measured: behind the rank, or in front of it where nothing stands behind."""
    behind = cell[said.end() :].strip(" -/._:")
    named = behind if re.search(r"[A-Za-z]{2}", _UNIT.sub("", behind)) else cell[: said.start()].strip(" -/._:")
    return re.split(r" - |[/.]", named)[-1].strip()


def _cells(line: str) -> list[str]:
    return [cell.strip().strip('"').strip() for cell in re.split(r"[,\t;]", line)]


def _number(cell: str) -> float | None:
    return float(cell) if re.fullmatch(r"\d{1,9}(?:\.\d{1,18})?", cell) else None
