"""Random graphs for properties of the critical path, and networkx as the second opinion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
from hypothesis import strategies as st

from forensics.rules.reductions.pipeline.dag import Dag, dag


@dataclass(frozen=True)
class Example:
    """A graph whose nodes are numbered in no order, with whole ns so that sums are exact."""

    graph: Dag
    durations: Any
    lags: Any


@st.composite
def examples(draw: st.DrawFn, largest: int = 12) -> Example:
    size = draw(st.integers(1, largest))
    numbers = draw(st.permutations(range(size)))
    ends = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)).filter(lambda pair: pair[0] != pair[1])
    edges = sorted({(min(pair), max(pair)) for pair in draw(st.lists(ends, max_size=3 * size))}) if size > 1 else []
    source, target = ([numbers[pair[k]] for pair in edges] for k in (0, 1))
    whole = st.integers(0, 50)
    durations, lags = (draw(st.lists(whole, min_size=n, max_size=n)) for n in (size, len(edges)))
    graph = dag(size, np.array(source, dtype=int), np.array(target, dtype=int))
    return Example(graph, np.array(durations, dtype=float), np.array(lags, dtype=float))


def networkx_makespan(example: Example, without: int | None = None) -> float:
    """Longest path from a first to a last node by networkx, durations on the edges that leave a node; `without` one node."""
    graph = nx.DiGraph([("begin", "end", {"weight": 0.0})])
    graph.add_nodes_from(range(example.graph.size))
    for source, target, lag in zip(example.graph.source, example.graph.target, example.lags, strict=True):
        graph.add_edge(int(source), int(target), weight=example.durations[source] + lag)
    firsts, lasts = ([n for n in range(example.graph.size) if not degree(n)] for degree in (graph.in_degree, graph.out_degree))
    graph.add_edges_from(("begin", node, {"weight": 0.0}) for node in firsts)
    graph.add_edges_from((node, "end", {"weight": example.durations[node]}) for node in lasts)
    graph.remove_nodes_from([] if without is None else [without])
    whole = nx.descendants(graph, "begin") & nx.ancestors(graph, "end")
    return float(nx.dag_longest_path_length(graph.subgraph({"begin", "end", *whole})))
