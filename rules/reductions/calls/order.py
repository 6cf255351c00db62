"""In which order rows of calls come: mostly the wanted one already, and to sort the calls of a large job takes long."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[Any]


def begins_of_runs(of: Column) -> npt.NDArray[np.int64]:
    """Where runs of equal values begin."""
    return np.flatnonzero(np.append(np.ones(min(len(of), 1), np.bool_), of[1:] != of[:-1]))


def are_by_rank(rank: Column, *keys: Column) -> bool:
    """Whether the rows of each rank come one after the other, in the order of the keys, the first of which counts most.

    Ranks may come in any order.
    """
    first = rank[begins_of_runs(rank)]
    if len(np.unique(first)) < len(first):
        return False
    still = rank[1:] == rank[:-1]
    for key in keys:
        if (still & (key[1:] < key[:-1])).any():
            return False
        still &= key[1:] == key[:-1]
    return True
