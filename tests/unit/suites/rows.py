"""Rows of suites, made from what was said and what is true."""

from __future__ import annotations

from typing import Any

from forensics.fixtures.suites.interface import Case
from forensics.fixtures.suites.running import Row
from forensics.fixtures.suites.scoring import is_positive, mark


def row(number: int, said: dict[str, Any] | None, true: dict[str, Any], about: str = "forward", **more: Any) -> Row:
    """A case of `hang`; without a verdict it ended in an error."""
    found = mark(said, true) if said else None
    error = "" if said else "no verdict within 600 s"
    return Row(Case("hang", 7, number), about, "dense", True, is_positive(true), true, said, found, error=error, **more)
