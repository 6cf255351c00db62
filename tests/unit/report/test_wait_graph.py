"""Who waits for whom as sets of ranks: nothing is lost, cycles end, the size does not grow with the ranks."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from forensics.model import Victims
from forensics.report.wait_graph import WaitNodes, drawn, wait_nodes
from tests.unit.report.verdicts import HANG, HEALTHY

RANKS = st.frozensets(st.integers(0, 9), min_size=1, max_size=5).map(lambda ranks: tuple(sorted(ranks)))
ROWS = st.lists(st.builds(Victims, RANKS, RANKS), max_size=8)


def pairs(graph: WaitNodes) -> set[tuple[int, int]]:
    nodes = graph.nodes
    return {(rank, whom) for one, other in graph.edges for rank in nodes[one].ranks for whom in nodes[other].ranks}


def stated(rows: list[Victims]) -> set[tuple[int, int]]:
    return {(rank, whom) for row in rows for rank in row.ranks for whom in row.waits_for}


@given(ROWS)
def test_every_wait_between_two_sets_is_an_arrow_and_no_other(rows: list[Victims]) -> None:
    graph = wait_nodes(rows)
    ranks = [rank for node in graph.nodes for rank in node.ranks]
    assert len(ranks) == len(set(ranks))
    place = {rank: number for number, node in enumerate(graph.nodes) for rank in node.ranks}
    assert pairs(graph) == {(rank, whom) for rank, whom in stated(rows) if place[rank] != place[whom]}


def test_a_chain_leads_to_its_end() -> None:
    graph = wait_nodes([Victims((3,), (7,)), Victims((2, 7), (6,)), Victims((0, 1), (3,))], (6,))
    assert {node.ranks: node.layer for node in graph.nodes} == {(6,): 0, (2,): 1, (7,): 1, (3,): 2, (0, 1): 3}


def test_a_circle_has_layers_too() -> None:
    graph = wait_nodes([Victims((0,), (1,)), Victims((1,), (2,)), Victims((2,), (0,))], (1,))
    assert {node.ranks: node.layer for node in graph.nodes} == {(1,): 0, (0,): 1, (2,): 2}


def test_of_many_sets_those_that_wait_for_a_suspect_are_drawn() -> None:
    rows = [Victims((rank,), ((rank + 1) % 10_000,)) for rank in range(10_000)]
    graph = wait_nodes(rows, (4_321,))
    assert graph.left_out == 10_000 - 24 and (4_320, 4_321) in pairs(graph)
    drawing = drawn(replace(HANG, victims=tuple(rows)))
    assert drawing is not None and "(+9976 more sets of waiting ranks)" in "".join(drawing.body)


def points(body: tuple[str, ...]) -> list[tuple[float, float]]:
    """All points that lines go through or are drawn to."""
    found = re.findall(r'd="([^"]*)"', "".join(body))
    return [(float(x), float(y)) for path in found for x, y in re.findall(r"(-?[\d.]+),(-?[\d.]+)", path)]


def test_a_circle_is_closed_inside_the_drawing() -> None:
    rows = (Victims((0,), (1,)), Victims((1,), (2,)), Victims((2,), (3,)), Victims((3,), (0, 1)))
    drawing = drawn(replace(HANG, victims=rows))
    assert drawing is not None and "".join(drawing.body).count('class="edge"') == 2 * 5
    assert all(0 <= x <= drawing.width and 0 <= y <= drawing.height for x, y in points(drawing.body))


def test_of_a_mesh_only_the_ways_to_its_end_are_drawn() -> None:
    """Each rank waits for the suspect, and for the next in a circle."""
    rows = tuple(Victims((rank,), (2, 10 + (rank - 9) % 20)) for rank in range(10, 30))
    drawing = drawn(replace(HANG, victims=rows))
    assert drawing is not None and "".join(drawing.body).count("<title>waits for</title>") == 20
    assert "(+20 waits among those that wait)" in "".join(drawing.body)


def test_a_job_in_which_nobody_waits_has_no_graph() -> None:
    assert drawn(HEALTHY) is None
