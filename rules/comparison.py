"""Which comparison of ranks would have shown one that was slow from the first step of the record on.

Steps that are as long at the end of a record as at its begin say nothing of a rank that was slow before: it delays all of them
alike. Only what holds the ranks against each other shows it, by when they come to calls, by what they work in a step, by their
stages, or by who is awaited inside operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NewType

from forensics.rules.reductions.pipeline.own_work import OwnWork
from forensics.rules.reductions.text.seen import Seen

Cleared = NewType("Cleared", Mapping[str, str])
"""What each rule that found its fault not to be there says of it, by code."""

_COMPARE = {
    "FX160": "no rank is late to calls",
    "FX172": "no rank is awaited inside operations",
    "FX170": "no stage is slow on one rank",
}
"""Rules that compare all ranks with each other where they clear, and what that tells."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What held all ranks against each other and found none slow, in words; None where nothing did."""

    by: str | None = None


def comparison(cleared: Cleared, own: OwnWork, seen: Seen) -> Comparison:
    """The first comparison of all ranks that would have shown a slow one."""
    stated = next((f"{what} ({code})" for code, what in _COMPARE.items() if code in cleared), None)
    if stated is None and not own.found and seen.all_in(own.compared):
        stated = "ranks with the same work need as long for it in every step"
    return Comparison(stated)
