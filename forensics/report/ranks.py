"""Lists of ranks in the few characters a line has: `0-126,128-255`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from forensics.model import Members
from forensics.rank_ranges import format_ranks

MOST_RANGES = 8
"""Ranges shown before a list is cut with `(+N more, --all-ranks)`."""


def fold(ranks: Iterable[int], most: int | None = MOST_RANGES) -> str:
    """The ranks as ranges in ascending order, at most `most` of them; None shows all. Empty is `none`."""
    return format_ranks(ranks, most, ", --all-ranks") or "none"


def phrase(ranks: Sequence[int], members: Members = Members.EACH, most: int | None = MOST_RANGES) -> str:
    """The ranks in words: `rank 2`, `ranks 0-3`, `one of ranks 0-3`, `no rank`."""
    distinct = set(ranks)
    if not distinct:
        return "no rank"
    if len(distinct) == 1:
        return f"rank {next(iter(distinct))}"
    return ("one of " if members is Members.ONE_OF else "") + f"ranks {fold(distinct, most)}"
