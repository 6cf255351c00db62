"""Lists of ranks in the few characters a line has: `0-126,128-255`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from forensics.model import Members

MOST_RANGES = 8
"""Ranges shown before a list is cut with `(+N more, --all-ranks)`."""


def fold(ranks: Iterable[int], most: int | None = MOST_RANGES) -> str:
    """The ranks as ranges in ascending order, at most `most` of them; None shows all. Empty is `none`."""
    ranges = _ranges(sorted(set(ranks)))
    shown = ranges if most is None else ranges[:most]
    text = ",".join(str(low) if low == high else f"{low}-{high}" for low, high in shown)
    left = sum(high - low + 1 for low, high in ranges[len(shown) :])
    return (text or "none") + (f" (+{left} more, --all-ranks)" if left else "")


def phrase(ranks: Sequence[int], members: Members = Members.EACH, most: int | None = MOST_RANGES) -> str:
    """The ranks in words: `rank 2`, `ranks 0-3`, `one of ranks 0-3`, `no rank`."""
    distinct = set(ranks)
    if not distinct:
        return "no rank"
    if len(distinct) == 1:
        return f"rank {next(iter(distinct))}"
    return ("one of " if members is Members.ONE_OF else "") + f"ranks {fold(distinct, most)}"


def _ranges(ordered: Sequence[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for rank in ordered:
        if ranges and rank == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], rank)
        else:
            ranges.append((rank, rank))
    return ranges
