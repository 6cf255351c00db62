"""Rows of suites, made from what was said and what is true."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from forensics.fixtures.suites.documents import pieces
from forensics.fixtures.suites.interface import Case, Suite
from forensics.fixtures.suites.rows import Row
from forensics.fixtures.suites.scoring import is_positive, mark


def row(number: int, said: dict[str, Any] | None, true: dict[str, Any], about: str = "forward", **more: Any) -> Row:
    """A case of `hang`; without a verdict it ended in an error."""
    found = mark(said, true) if said else None
    error = "" if said else "no verdict within 600 s"
    return Row(Case("hang", 7, number), about, "dense", True, is_positive(true), true, said, found, error=error, **more)


def document(suite: Suite, seed: int, rows: Collection[Row]) -> dict[str, Any]:
    """What `--format json` prints of one suite, read back."""
    found: dict[str, Any] = json.loads("".join(pieces([(suite, rows)], seed)))
    return found
