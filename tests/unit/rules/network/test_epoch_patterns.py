"""Which algorithm active peers show (Pulse 5.1): rings, trees and exchanges as NCCL makes them, and what looks like several."""

from __future__ import annotations

from itertools import permutations

import pytest

from forensics.rules.reductions.epochs.patterns import Pattern, patterns

Moved = dict[tuple[int, int], float]


def ring(members: int, volume: float = 100.0) -> Moved:
    return {(rank, (rank + 1) % members): volume for rank in range(members)}


def both(*edges: tuple[int, int], volume: float = 50.0) -> Moved:
    return {ends: volume for a, b in edges for ends in ((a, b), (b, a))}


def exchange(members: int) -> Moved:
    """Not quite even."""
    return {(a, b): 50.0 + a + b for a, b in permutations(range(members), 2)}


def together(*parts: Moved) -> Moved:
    found: Moved = {}
    for part in parts:
        found = {ends: found.get(ends, 0.0) + part.get(ends, 0.0) for ends in found | part}
    return found


DOUBLE_TREE = both((0, 4), (4, 2), (4, 6), (2, 1), (2, 3), (6, 5), (6, 7)) | both(
    (1, 5), (5, 3), (5, 7), (3, 2), (3, 4), (7, 6), (7, 0)
)


@pytest.mark.parametrize(
    ("moved", "expected"),
    [
        (ring(4), {Pattern.RING}),
        (ring(8) | {(rank + 10, (rank + 1) % 8 + 10): 90.0 for rank in range(8)}, {Pattern.RING}),
        (DOUBLE_TREE, {Pattern.TREE}),
        (both((0, 1), (1, 2), (1, 3)), {Pattern.TREE}),
        (exchange(4), {Pattern.EXCHANGE}),
        (together(exchange(4), ring(4)), {Pattern.EXCHANGE, Pattern.RING}),
        (ring(4) | both((0, 2), volume=1.0), {Pattern.RING}),
    ],
    ids=["ring", "a ring on each rail", "double tree", "tree", "exchange", "exchange and ring", "ring and small messages"],
)
def test_active_peers_show_the_algorithm(moved: Moved, expected: set[Pattern]) -> None:
    assert patterns(moved) == expected


@pytest.mark.parametrize(
    "moved",
    [{}, both((0, 1)), {(0, 1): 1.0, (1, 2): 1.0}, ring(4) | {(10, 11): 90.0, (11, 10): 90.0}, ring(4) | {(0, 2): 90.0}],
    ids=["nothing", "two ranks", "a way that ends", "parts that differ", "one more peer"],
)
def test_nothing_is_shown(moved: Moved) -> None:
    assert patterns(moved) == frozenset()
