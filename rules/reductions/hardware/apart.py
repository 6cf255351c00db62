"""Whether some ranks stand apart from the others of the job in what is known of their processes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from statistics import median

# Of the others: if more are so, it is how the job is started.
_COMMON = 0.25
_FEWEST_OTHERS = 3


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
