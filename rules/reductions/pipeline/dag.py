"""A directed acyclic graph as arrays, in topological levels: nothing is done node by node in Python.

What is computed over it costs a few array operations a level, and time in proportion to the edges. The passes of an iteration
have few more levels than one stage has passes, however many pipelines there are. A chain of a million nodes would take half a
minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.signedinteger[Any]]
Flags = npt.NDArray[np.bool_]
_ID = np.int32


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """One way through the graph: nodes that have edges on one side, level by level, each after all at the other end of these.

    `edges` are numbers of edges, grouped by node: those of `nodes[i]` begin at `begin[i]`; `others` are the nodes at their
    other end. `levels` holds (first node, end of nodes, first edge, end of edges) for each level.
    """

    nodes: Ints
    begin: Ints
    edges: Ints
    others: Ints
    levels: Sequence[tuple[int, int, int, int]]


@dataclass(frozen=True, slots=True, eq=False)
class Dag:
    """Nodes 0 .. `size` - 1, edges `source[e]` -> `target[e]`; `position` is the place of a node in a topological order.

    `onwards` goes from each node's predecessors to it, `backwards` from its successors.
    """

    size: int
    source: Ints
    target: Ints
    position: Ints
    onwards: Sweep
    backwards: Sweep


def dag(size: int, source: npt.ArrayLike, target: npt.ArrayLike) -> Dag:
    """Order a graph of `size` nodes by levels; edges may be given twice.

    Raises ValueError when an edge leads out of the nodes, or when the graph has a cycle.
    """
    ends = _ends(size, source), _ends(size, target)
    if len(ends[0]) != len(ends[1]):
        raise ValueError(f"{len(ends[0])} sources and {len(ends[1])} targets of edges")
    leaving, arriving = (_grouped(size, end) for end in ends)
    order, bounds = _levels(leaving, ends[1], np.diff(arriving[0]))
    if len(order) < size:
        raise ValueError(f"the graph has a cycle: {size - len(order)} of {size} nodes are on one or behind one")
    position = np.empty(size, dtype=_ID)
    position[order] = np.arange(size, dtype=_ID)
    onwards = _sweep(order, bounds, arriving, ends[0])
    return Dag(size, *ends, position, onwards, _sweep(order[::-1], size - bounds[::-1], leaving, ends[1]))


def _ends(size: int, given: npt.ArrayLike) -> Ints:
    """Ends of edges, checked."""
    ends = np.asarray(given)
    if ends.size and not (np.issubdtype(ends.dtype, np.integer) and ends.min() >= 0 and ends.max() < size):
        raise ValueError(f"an edge ends outside the nodes 0 to {size - 1}")
    return ends.astype(_ID, copy=False)


def _grouped(size: int, ends: Ints) -> tuple[Ints, Ints]:
    """Edges grouped by their node at one end: where the group of each node begins (and the last ends), and the edges."""
    return _before(np.bincount(ends, minlength=size)), np.argsort(ends, kind="stable").astype(_ID)


def _spread(begin: Ints, nodes: Ints) -> Ints:
    """Places of the grouped edges of these nodes, in the order of the nodes."""
    counts = begin[nodes + 1] - begin[nodes]
    ends = np.cumsum(counts, dtype=_ID)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(begin[nodes] - ends + counts, counts) + np.arange(total, dtype=_ID)


def _levels(leaving: tuple[Ints, Ints], target: Ints, waits: Ints) -> tuple[Ints, Ints]:
    """Nodes by level, those on a cycle and behind it left out, and where each level begins (and the last ends).

    `waits` is the number of predecessors of each node, and is counted down.
    """
    begin, edges = leaving
    successors = target[edges]
    seat = np.empty(len(waits), dtype=_ID)
    found = [np.flatnonzero(waits == 0).astype(_ID)]
    while len(found[-1]):
        reached = successors[_spread(begin, found[-1])]
        np.subtract.at(waits, reached, 1)
        free = reached[waits[reached] == 0]
        numbers = np.arange(len(free), dtype=_ID)
        seat[free] = numbers
        found.append(free[seat[free] == numbers])
    return np.concatenate(found), np.cumsum([0, *map(len, found)])


def _sweep(order: Ints, bounds: Ints, grouped: tuple[Ints, Ints], others: Ints) -> Sweep:
    begin, edges = grouped
    counts = np.diff(begin)[order]
    has_edges = counts > 0
    nodes = order[has_edges]
    chosen = edges[_spread(begin, nodes)]
    first_edge, first_node = _before(counts)[bounds], _before(has_edges)[bounds]
    rows = np.column_stack([first_node[:-1], first_node[1:], first_edge[:-1], first_edge[1:]])
    levels = [(a, b, c, d) for a, b, c, d in rows.tolist() if b > a]
    return Sweep(nodes, _before(counts[has_edges])[:-1], chosen, others[chosen], levels)


def _before(counts: npt.NDArray[Any]) -> Ints:
    """Sum of the counts before each, and of all."""
    sums = np.zeros(len(counts) + 1, dtype=_ID)
    np.cumsum(counts, out=sums[1:])
    return sums
