"""What methods on whole operators make of starts and ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from forensics.fixtures.suites.baselines.facts import Blame
from forensics.fixtures.suites.baselines.operators import Operators, of_operators
from forensics.model import Component

MS = 1e6
COUNT = 30
SLOW = np.arange(COUNT) >= 15


def team(
    ranks: Sequence[int], *, spent: float = 5 * MS, taken: float = 20 * MS, late: int | None = None, by: float = 0.0,
    slower: float = 1.0, is_custom: bool = False, low: int | None = None, once: bool = False,
) -> Operators:  # fmt: skip
    """Operators one after the other; from the half on one member computes longer, or the network takes longer."""
    computed = np.full((COUNT, len(ranks)), spent)
    if late is not None:
        computed[SLOW if not once else 20, ranks.index(late)] += by
    took = np.where(SLOW, slower, 1.0) * taken
    begins = np.concatenate([[0.0], np.cumsum(computed.max(axis=1) + took)[:-1]])
    start = begins[:, None] + computed
    end = np.broadcast_to((start.max(axis=1) + took)[:, None], start.shape).copy()
    if low is not None:
        end[:, ranks.index(low)] += np.where(SLOW, taken, 0.0)
    return Operators(int(is_custom), is_custom, np.full(start.shape, 64e6), np.array(ranks), start, end, computed)


def accused(*known: Operators) -> dict[Component | None, set[int]]:
    return {blame.component: set(blame.ranks) for blame in of_operators(known)}


SOUND = team([4, 5, 6, 7])


def test_nobody_is_accused_in_a_sound_job() -> None:
    assert of_operators([SOUND, team([0, 1, 2, 3], is_custom=True)]) == ()


def test_who_computes_longer_before_its_operators_is_accused_of_computing() -> None:
    assert accused(team([0, 1, 2, 3], late=2, by=4 * MS), SOUND) == {Component.COMPUTE: {2}}


def test_a_collective_that_takes_longer_is_the_network_of_the_whole_group() -> None:
    assert accused(team([0, 1, 2, 3], slower=2.0), SOUND) == {Component.COMMUNICATION: {0, 1, 2, 3}}


def test_a_member_of_a_custom_collective_with_a_low_rate_is_accused_alone() -> None:
    found = team([0, 1, 2, 3], low=1, taken=2 * MS, is_custom=True, late=3, by=1 * MS)
    assert accused(found, SOUND)[Component.COMMUNICATION] == {1}


def test_whoever_waits_for_a_late_peer_has_a_low_rate() -> None:
    """Pulse 7.2.6: false accusations through gaps. Two of four come late, and the other two are those that look slow."""
    early = team([0, 1, 2, 3], taken=2 * MS, is_custom=True, late=2, by=6 * MS)
    start = early.start.copy()
    start[SLOW, 3] = start[SLOW, 2] - 1.0 * MS
    found = Operators(1, True, early.bytes, early.ranks, start, early.end, early.spent)
    assert accused(found, SOUND) == {Component.COMPUTE: {2}, Component.COMMUNICATION: {0, 1}}


@pytest.mark.parametrize("known", [[], [team([0, 1], late=1, by=0.0)]])
def test_without_a_slower_iteration_nobody_looks(known: list[Operators]) -> None:
    assert of_operators(known) == ()


def test_one_long_moment_is_of_who_came_last() -> None:
    assert of_operators([team([0, 1, 2, 3], late=2, by=900 * MS, once=True)]) == (Blame(frozenset({2}), Component.COMPUTE),)
