"""Whether some ranks, or a host, stand apart from the others of the job in what is known of their processes or cores."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from statistics import median

# Of the others: if more are so, it is how the job is started.
_COMMON = 0.25
_FEWEST_OTHERS = 3
_FEWEST_HOSTS = 2
"""Beside a host: one alone shows nothing."""


def usual_of_others(
    ranks: Collection[int], values: Mapping[int, float], is_odd: Callable[[float, float], bool]
) -> float | None:
    """What is usual for the others, where each of the ranks is odd beside it and few of the others are; else None.

    `values` are those of the ranks of which something is known; `is_odd` takes a value and the usual one.
    """
    others = [value for rank, value in values.items() if rank not in ranks]
    if not ranks or not values.keys() >= set(ranks) or len(others) < _FEWEST_OTHERS:
        return None
    usual = median(others)
    is_common = sum(is_odd(value, usual) for value in others) > _COMMON * len(others)
    return usual if not is_common and all(is_odd(values[rank], usual) for rank in ranks) else None


def usual_beside(values: Mapping[str, float]) -> dict[str, float]:
    """By host, the median of all other hosts; empty where these are fewer than two."""
    others = len(values) - 1
    if others < _FEWEST_HOSTS:
        return {}
    ordered = sorted(values.values())
    middle = (others - 1) // 2, others // 2
    places = {host: bisect_left(ordered, value) for host, value in values.items()}
    return {host: sum(ordered[at + (at >= own)] for at in middle) / 2 for host, own in places.items()}
