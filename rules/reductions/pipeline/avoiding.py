"""The longest way through a graph that leaves a node out, for every node at once.

In a topological order, a path that leaves a node out passes over its position with one edge, ends before it, or begins after
it. So each edge counts, with the longest way through it, for all positions between its ends; the value of a node is the largest
that counts at its position. Ranges are covered by two overlapping ones of a power of two, as in a sparse table, and handed down
from power to power.
"""

from __future__ import annotations

import numpy as np

from forensics.rules.reductions.pipeline.dag import Dag, Floats, Ints


def longest_avoiding(graph: Dag, finish: Floats, rest: Floats, lags: Floats | None = None) -> Floats:
    """Return the length in ns of the longest path from begin to end that leaves out each node; 0 where there is none.

    `finish` is the longest way to the end of each node and `rest` that from its start to the end of the whole (ns, by node).
    """
    place = graph.position
    lengths = finish[graph.source] + rest[graph.target] + (0.0 if lags is None else lags)
    first, last = (np.flatnonzero(np.bincount(ends, minlength=graph.size) == 0) for ends in (graph.target, graph.source))
    begin = np.concatenate([place[graph.source] + 1, np.zeros_like(first), place[last] + 1])
    end = np.concatenate([place[graph.target], place[first], np.full_like(last, graph.size)])
    held = _largest_held(graph.size, begin, end, np.concatenate([lengths, rest[first], finish[last]]))
    return held[place]


def _largest_held(size: int, begin: Ints, end: Ints, values: Floats) -> Floats:
    """Largest value of the ranges [begin, end) over each place; 0 where there is none."""
    powers = np.arange(int(size).bit_length())
    power = np.searchsorted(1 << powers, end - begin, side="right").astype(np.int8) - 1
    by_power = np.argsort(power, kind="stable")
    ends = np.searchsorted(power[by_power], powers, side="right")
    starts = np.searchsorted(power[by_power], powers)
    held = np.zeros(size)
    for k in powers[::-1]:
        handed, half = held, 1 << k
        held = handed.copy()
        np.maximum(held[half:], handed[:-half], out=held[half:])
        chosen = by_power[starts[k] : ends[k]]
        np.maximum.at(held, begin[chosen], values[chosen])
        np.maximum.at(held, end[chosen] - half, values[chosen])
    return held
