"""Which calls of a rank are alike: those of one kind, size and peer in one communicator, whatever size where data decides it.

How many tokens go to which expert changes from call to call, and with it the size of the exchange: no size recurs step by step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

# Fewer sizes are those of layers; so are sizes that are met again over more of the exchanges than this.
_FEW_SIZES, _LOCAL = 4, 0.25
_EXCHANGE = "all_to_all"


def alike(hashes: Hashes, columns: Mapping[str, npt.NDArray[Any]], kinds: Sequence[str]) -> Hashes:
    """One hash for the calls of a rank that are alike, from those of kind, size and peer; `columns` are by rank, in the host's
    order.
    """
    at = np.flatnonzero(np.array([_EXCHANGE in kind for kind in kinds] or [False])[columns["kind"]])
    if len(at):
        kind = columns["communicator"][at].astype(np.int64) * len(kinds) + columns["kind"][at]
        varying = _of_varying_size(hashes[at], np.stack([columns["rank"][at].astype(np.int64), kind]))
        hashes = hashes.copy()
        hashes[at[varying]] = kind[varying].astype(np.uint64)
    return hashes


def numbered(hashes: Hashes) -> npt.NDArray[np.int32]:
    """Numbers from 0 on instead of the hashes of a record, in the order in which they are met first.

    Ranks that run the same program in communicators of their own then have the same numbers.
    """
    _, first, code = np.unique(hashes, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first)), np.int32)[code]


def _of_varying_size(hashes: Hashes, series: Ints) -> npt.NDArray[np.bool_]:
    """Which exchanges are of a series (of one rank, one kind) with many sizes, most of them met in a small part of it only."""
    number = np.unique(series, axis=1, return_inverse=True)[1].reshape(-1)
    count = np.bincount(number)
    place = _places(number, count)
    size = np.unique(np.stack([number.astype(np.uint64), hashes]), axis=1, return_inverse=True)[1].reshape(-1)
    first, last, of = (np.zeros(int(size.max()) + 1, np.int64) for _ in range(3))
    first[size[::-1]], last[size], of[size] = place[::-1], place, number
    sizes = np.bincount(of, minlength=len(count))
    local = np.bincount(of, weights=last - first < _LOCAL * count[of], minlength=len(count))
    return np.asarray(((sizes > _FEW_SIZES) & (2 * local > sizes))[number])


def _places(number: Ints, count: Ints) -> Ints:
    """The place of each item among those with its number."""
    order = np.argsort(number, kind="stable")
    place = np.empty(len(number), np.int64)
    place[order] = np.arange(len(number)) - np.repeat(np.cumsum(count) - count, count)
    return place
