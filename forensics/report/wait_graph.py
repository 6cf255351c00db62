"""Who waits for whom as a drawing: sets of ranks that wait alike, arrows to whom they wait for, suspects at the right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forensics.model import GroupRow, Verdict, Victims
from forensics.report import ranks, suspects
from forensics.report.drawing import Drawing
from forensics.report.markup import tag
from forensics.report.plain import brief

_MOST_ROWS = 24
"""Sets of waiting ranks that are drawn; those that wait for a suspect come first, then the largest."""
_BOX_WIDTH, _BOX, _GAP, _BETWEEN = 250, 40, 14, 110
_LABEL = 38
_NAMED, _NAMED_BETWEEN, _REASON = 2, 210, 42
"""Arrows up to which the operation is written on each, in the room between boxes that this takes, cut to so many letters."""
_MOST_ARROWS = 30
"""Arrows up to which also those are drawn that lead no nearer to the end of a chain: a circle has them, a mesh many."""
_BULGE = 45


@dataclass(frozen=True, slots=True)
class WaitNode:
    """Ranks that wait for the same ranks and are waited for by the same; `layer` counts waits to the end of their chain."""

    ranks: tuple[int, ...]
    layer: int


@dataclass(frozen=True, slots=True)
class WaitNodes:
    """Nodes, arrows between them (places of who waits and of whom it waits for), and sets of ranks that were left out."""

    nodes: tuple[WaitNode, ...]
    edges: tuple[tuple[int, int], ...]
    left_out: int = 0


def wait_nodes(victims: Sequence[Victims], accused: Sequence[int] = (), most: int = _MOST_ROWS) -> WaitNodes:
    """Split the ranks into sets that no row tells apart; the size is bounded by the rows, not by the ranks."""
    guilty = set(accused)
    order = sorted(victims, key=lambda row: (guilty.isdisjoint(row.waits_for), -len(row.ranks), row.ranks))
    rows = order[:most]
    places: defaultdict[int, set[tuple[int, bool]]] = defaultdict(set)
    for number, row in enumerate(rows):
        for rank in row.ranks:
            places[rank].add((number, True))
        for rank in row.waits_for:
            places[rank].add((number, False))
    alike: defaultdict[frozenset[tuple[int, bool]], list[int]] = defaultdict(list)
    for rank in sorted(places):
        alike[frozenset(places[rank])].append(rank)
    keys = list(alike)
    edges = tuple(_edges(keys, len(rows)))
    layers = _layers(len(keys), edges, [place for place, key in enumerate(keys) if not guilty.isdisjoint(alike[key])])
    nodes = tuple(WaitNode(tuple(alike[key]), layer) for key, layer in zip(keys, layers, strict=True))
    return WaitNodes(nodes, edges, len(order) - len(rows))


def _edges(keys: Sequence[frozenset[tuple[int, bool]]], rows: int) -> Iterator[tuple[int, int]]:
    found: dict[tuple[int, int], None] = {}
    for number in range(rows):
        whom = [place for place, key in enumerate(keys) if (number, False) in key]
        for place, key in enumerate(keys):
            if (number, True) in key:
                found |= {(place, other): None for other in whom if other != place}
    return iter(found)


def _layers(count: int, edges: Sequence[tuple[int, int]], guilty: Sequence[int]) -> list[int]:
    """Waits from each node to one that waits for nobody; where all wait, to a suspect, else to the first node."""
    waiters: defaultdict[int, list[int]] = defaultdict(list)
    for one, other in edges:
        waiters[other].append(one)
    waiting = {one for one, _ in edges}
    ends = [place for place in range(count) if place not in waiting]
    layers = [-1] * count
    queue = list(dict.fromkeys([*ends, *guilty])) or [0][:count]
    for place in queue:
        layers[place] = 0
    for place in queue:
        for other in waiters[place]:
            if layers[other] < 0:
                layers[other] = layers[place] + 1
                queue.append(other)
    return [max(layer, 0) for layer in layers]


def drawn(verdict: Verdict) -> Drawing | None:
    """The drawing; None when nobody is known to wait."""
    accused = {rank: suspect for suspect in reversed(verdict.suspects) for rank in suspect.ranks}
    graph = wait_nodes(verdict.victims, tuple(accused))
    if not graph.edges:
        return None
    last = max(node.layer for node in graph.nodes)
    edges = _shown(graph)
    between = _NAMED_BETWEEN if len(edges) <= _NAMED else _BETWEEN
    spots = list(_spots(graph, last, between))
    note = _left_out(graph.left_out, len(graph.edges) - len(edges))
    height = max(y for _, y in spots) + _BOX + (34 if note else 10)
    width = (last + 1) * (_BOX_WIDTH + between) - between + 20 + _BULGE
    body: list[str] = []
    for one, other in edges:
        body += _arrow(spots[one], spots[other], _why(verdict.groups, graph.nodes[one], graph.nodes[other]), len(edges))
    for node, spot in zip(graph.nodes, spots, strict=True):
        cause = next((suspects.words(accused[rank].cause) for rank in node.ranks if rank in accused), None)
        body += _node(node, spot, cause)
    if note:
        body.append(tag("text", note, x=10, y=height - 8))
    return Drawing(max(width, 400), height, "which ranks wait for which", tuple(body))


def _shown(graph: WaitNodes) -> list[tuple[int, int]]:
    """The arrows that are drawn: of many only those that lead nearer to the end of a chain."""
    if len(graph.edges) <= _MOST_ARROWS:
        return list(graph.edges)
    return [(one, other) for one, other in graph.edges if graph.nodes[other].layer < graph.nodes[one].layer]


def _left_out(rows: int, arrows: int) -> str:
    """What is not drawn."""
    said = (f"+{rows} more sets of waiting ranks" if rows else "", f"+{arrows} waits among those that wait" if arrows else "")
    return f"({', '.join(filter(None, said))})" if any(said) else ""


def _spots(graph: WaitNodes, last: int, between: int) -> Iterator[tuple[int, int]]:
    """Upper left corner of each node: a column a layer, the ends of the chains at the right."""
    taken: defaultdict[int, int] = defaultdict(int)
    for node in graph.nodes:
        yield 10 + (last - node.layer) * (_BOX_WIDTH + between), 10 + taken[node.layer] * (_BOX + _GAP)
        taken[node.layer] += 1


def _node(node: WaitNode, spot: tuple[int, int], cause: str | None) -> Iterator[str]:
    x, y = spot
    who = ranks.phrase(node.ranks, most=ranks.MOST_RANGES)
    kind = "waits" if cause is None else "suspect"
    yield tag("rect", tag("title", who), class_=kind, x=x, y=y, width=_BOX_WIDTH, height=_BOX, rx=4)
    count = f" ({len(node.ranks)})" if len(node.ranks) > 1 else ""
    short = ranks.phrase(node.ranks, most=2).replace(", --all-ranks", "")
    yield tag("text", brief(short, _LABEL - len(count)) + count, x=x + 8, y=y + 16, font_size=12)
    said = f"suspect: {cause}" if cause is not None else "waits" if len(node.ranks) == 1 else "wait"
    yield tag("text", brief(said, _LABEL), x=x + 8, y=y + 32)


def _arrow(begin: tuple[int, int], end: tuple[int, int], why: str, edges: int) -> Iterator[str]:
    """A curve between the sides of two boxes that face each other; the operation is written on it where there are few.

    Between boxes of one column it leaves and arrives at the right.
    """
    x, out = (begin[0], -1) if end[0] < begin[0] else (begin[0] + _BOX_WIDTH, 1)
    to_x, side = (end[0], -1) if end[0] > begin[0] else (end[0] + _BOX_WIDTH, 1)
    y, to_y = begin[1] + _BOX // 2, end[1] + _BOX // 2
    bend = _BULGE if end[0] == begin[0] else max(abs(to_x - x) // 2, 40)
    tip = to_x + 7 * side
    path = f"M{x},{y} C{x + bend * out},{y} {to_x + bend * side},{to_y} {tip},{to_y}"
    yield tag("path", tag("title", why or "waits for"), class_="edge", d=path, fill="none")
    yield tag("path", class_="edge", d=f"M{tip},{to_y - 4} L{to_x},{to_y} L{tip},{to_y + 4}", fill="none")
    if why and edges <= _NAMED:
        yield tag("text", brief(why, _REASON), x=(x + to_x) // 2, y=(y + to_y) // 2 - 6, text_anchor="middle", font_size=9)


def _why(groups: Sequence[GroupRow], one: WaitNode, other: WaitNode) -> str:
    """The operation that the first is in and the second is missing from."""
    mine, theirs = set(one.ranks), set(other.ranks)
    row = next((row for row in groups if mine & set(row.joined) and theirs & set(row.missing)), None)
    if row is None or row.operation is None:
        return ""
    return f"{row.operation}{'' if row.sequence is None else f' seq {row.sequence}'} of {row.communicator}"
