"""A cause is named for a slow job only where what was measured accounts for the cost; what was not measured is unknown."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Evidence

LEAST_ACCOUNTED = 0.8
"""Of the lost time: what explains less leaves room for another cause."""


def unexplained(accounted: float | None, what: str, least: float = LEAST_ACCOUNTED) -> Iterator[Evidence]:
    """Why no cause is named: the share of the cost that was measured, None when it was not measured."""
    if accounted is None:
        yield Evidence(f"cause unknown beyond that: {what} was not measured against the lost time", None, supports=False)
    elif accounted < least:
        share = f"{100 * accounted:.0f} %"
        yield Evidence(f"cause unknown beyond that: {what} accounts for {share} of the lost time", None, supports=False)
