"""Rank lists as people write them: `0-3,7`."""

from __future__ import annotations

from collections.abc import Iterable

_MAX_RANKS = 1 << 20


def parse_ranks(text: str) -> frozenset[int]:
    """Numbers and ranges separated by commas. Raises ValueError with the part that is none."""
    ranks: set[int] = set()
    for part in text.split(","):
        first, dash, last = (word.strip() for word in part.partition("-"))
        if not (first.isdecimal() and (last.isdecimal() or not dash)):
            raise ValueError(f"{part.strip()!r} is neither a rank nor a range such as 0-3")
        low, high = int(first), int(last or first)
        if high < low or high >= _MAX_RANKS:
            raise ValueError(f"{part.strip()!r} is not a range of ranks")
        ranks.update(range(low, high + 1))
    return frozenset(ranks)


def format_ranks(ranks: Iterable[int], most: int | None = None, hint: str = "") -> str:
    """Folded ranges in order, `0-3,7`; the ranks of those beyond the first `most` are counted, with a hint."""
    ranges: list[tuple[int, int]] = []
    for rank in sorted(set(ranks)):
        first = ranges.pop()[0] if ranges and rank == ranges[-1][1] + 1 else rank
        ranges.append((first, rank))
    shown = ranges[:most]
    text = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in shown)
    left = sum(last - first + 1 for first, last in ranges[len(shown) :])
    return f"{text} (+{left} more{hint})" if left else text
