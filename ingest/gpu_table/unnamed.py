"""Rows of `--query-gpu` without the names of their columns (`noheader`), by the units of their cells."""

from __future__ import annotations

import re
from collections.abc import Sequence

_CELL = re.compile(r"\d{1,12}(?:\.\d{1,6})? (%|MiB|W|MHz)")
_NAMES = {"%": "utilization.gpu", "MiB": "memory.used", "W": "power.draw", "MHz": "clocks.current.sm"}
_LEAST = 2


def named_by_units(cells: Sequence[str]) -> list[str]:
    """Names of the columns of a row that begins with the number of a GPU; of two cells of one unit nothing is known."""
    units = [said[1] if (said := _CELL.fullmatch(cell)) else "" for cell in cells[1:]]
    known = [unit for unit in units if unit]
    if not cells[0].isdecimal() or len(cells[0]) > 3 or len({*known}) < _LEAST or "%" not in known:
        return []
    return ["index", *(_NAMES[unit] if unit and units.count(unit) == 1 else f"unknown.{at}" for at, unit in enumerate(units))]
