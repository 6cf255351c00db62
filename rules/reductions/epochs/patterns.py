"""Which algorithm the peers show that the NICs of a group are active with (Pulse section 5.1).

Calls do not say whether NCCL moves them in ring or in tree order. In ring order each rank sends to its successor alone; in tree
order it moves data with its parents and children both ways, in two trees at most; messages of all to all go both ways between
every two. Where a group exchanges and reduces, what one direction of a pair moves beyond the other one is of its ring. Of two
ranks all look alike, and a tree without a branch looks like a pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import permutations

import networkx as nx

Ends = tuple[int, int]
Moved = Mapping[Ends, float]
"""Bytes by sender and receiver."""

# Of what the busiest link moves: less is what programs tell each other; and by how much both directions of an edge may differ.
_LEAST, _ALIKE = 0.1, 1.2
_FEWEST = 3


class Pattern(StrEnum):
    """What active peers look like."""

    RING = "ring"
    TREE = "tree"
    EXCHANGE = "exchange"


def patterns(moved: Moved) -> frozenset[Pattern]:
    """What all sets of ranks that data of each other reaches show; nothing where they differ, or are too small."""
    parts = [frozenset(_of_part(part)) for part in _parts(moved)]
    return parts[0] if parts and len({*parts}) == 1 else frozenset()


def _parts(moved: Moved) -> Iterator[dict[Ends, float]]:
    """Links of each set of ranks, without those that move next to nothing."""
    most = max(moved.values(), default=0.0)
    links = {ends: volume for ends, volume in moved.items() if volume > _LEAST * most}
    for members in nx.connected_components(nx.Graph([*links])):
        yield {ends: volume for ends, volume in links.items() if ends[0] in members}


def _of_part(links: Moved) -> Iterator[Pattern]:
    members = {rank for ends in links for rank in ends}
    if len(members) < _FEWEST:
        return
    beyond = dict(links)
    if all(ends in links for ends in permutations(members, 2)):
        yield Pattern.EXCHANGE
        beyond = {(a, b): volume - min(volume, links[b, a]) for (a, b), volume in links.items()}
        most = max(links.values())
        beyond = {ends: volume for ends, volume in beyond.items() if volume > _LEAST * most}
    elif _is_tree(links, len(members)):
        yield Pattern.TREE
    if _is_ring(beyond, len(members)):
        yield Pattern.RING


def _is_ring(links: Moved, members: int) -> bool:
    """Whether each sends to one, and one way leads through all of them."""
    following = dict(links.keys())
    if len(links) != members or len(following) != members:
        return False
    start = min(following)
    rank, seen = following[start], 1
    while rank != start and rank in following and seen < members:
        rank, seen = following[rank], seen + 1
    return rank == start and seen == members


def _is_tree(links: Moved, members: int) -> bool:
    """Whether all edges move about the same both ways, and are as many as one tree has, or two with other edges."""
    both = all(volume <= _ALIKE * links.get((b, a), 0.0) for (a, b), volume in links.items())
    return both and members - 1 <= len(links) // 2 <= 2 * (members - 1)
