"""Columns that are filled row by row, where a file gives few rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def add_row(columns: dict[str, list[Any]], row: Mapping[str, Any]) -> None:
    """Append a row, which has the same names each time, to columns that a `defaultdict` makes."""
    for name, value in row.items():
        columns[name].append(value)
