"""In which order rows of calls come: mostly the wanted one already, and to sort the calls of a large job takes long."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Order = list[slice] | Ints | None
"""Pieces of the rows one after the other, or the place of each row; None where they stay as they are."""
# Of rows: threads of DuckDB give what they read in pieces of thousands of rows.
_LEAST_PIECE = 64


def begins_of_runs(of: Column) -> Ints:
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


def order_by_rank(rank: Column, *keys: Column) -> Order:
    """What puts rows in an order in which `are_by_rank` is true; the last key is their place in the evidence.

    What lies together in the evidence mostly comes together: pieces are moved in a tenth of the time that sorting rows takes.
    """
    if are_by_rank(rank, *keys):
        return None
    pieces = _pieces(rank, *keys)
    if pieces and are_by_rank(*(taken(column, pieces) for column in (rank, *keys))):
        return pieces
    return np.lexsort((*keys[::-1], rank))


def taken(column: Column, order: Order) -> Column:
    """The rows of a column in an order."""
    if isinstance(order, list):
        return np.concatenate([column[piece] for piece in order])
    return column if order is None else column[order]


def _pieces(rank: Column, *keys: Column) -> list[slice]:
    """Runs of rows of one rank from one place to the next, ordered by their first rows; empty where they are short."""
    begins = np.union1d(begins_of_runs(rank), np.flatnonzero(np.diff(keys[-1]) != 1) + 1)
    if len(begins) * _LEAST_PIECE > len(rank):
        return []
    bounds = np.append(begins, len(rank)).tolist()
    order = np.lexsort((*(key[begins] for key in keys[::-1]), rank[begins]))
    return [slice(bounds[at], bounds[at + 1]) for at in order.tolist()]
