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


def format_ranks(ranks: Iterable[int]) -> str:
    """Folded ranges in order: `0-3,7`."""
    parts: list[str] = []
    ordered = sorted(set(ranks))
    start = 0
    for index, rank in enumerate(ordered):
        if index + 1 == len(ordered) or ordered[index + 1] != rank + 1:
            first = ordered[start]
            parts.append(str(first) if first == rank else f"{first}-{rank}")
            start = index + 1
    return ",".join(parts)
