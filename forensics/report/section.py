"""Titled parts of a report, before any format."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Item:
    """One entry: its text, a marker in a column of its own, the place it was read, and a drawing that keeps its place."""

    text: str
    marker: str = ""
    source: str | None = None
    drawing: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of a report; `vital` parts belong into the summary of a ticket."""

    title: str
    items: tuple[Item, ...]
    vital: bool = False
