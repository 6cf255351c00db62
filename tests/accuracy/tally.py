"""Counts of right and wrong names, as cells of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from forensics.fixtures.suites.intervals import share


@dataclass(frozen=True, slots=True)
class Tally:
    """Of how many cases the ranks were right, and in how many others were named."""

    right: int
    others: int
    cases: int

    def __add__(self, other: Self) -> Tally:
        return Tally(self.right + other.right, self.others + other.others, self.cases + other.cases)

    def cells(self) -> str:
        """Two cells of a row, each a share with its interval."""
        return f"{share(self.right, self.cases)} | {share(self.others, self.cases)}"
