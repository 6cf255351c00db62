"""Tensor-parallel ranks that hold up the same step: which of them it was, and what all of them share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forensics.rules.reductions.pipeline.delay import Delay, Delays
from forensics.rules.reductions.pipeline.late_alike import moves, settled, without_followers

EXCESS = 400e6


def late(rank: int, equals: float = 0.0, *, waited: float = EXCESS, transfer: bool = False) -> Delay:
    return Delay(3, EXCESS, (rank,), f"{rank}:pp", 7, "recv", 0, (1, rank), waited, is_transfer=transfer, equals_ns=equals)


def alike(step: int, *ranks: int) -> Delay:
    return Delay(step, EXCESS, ranks, "0:pp", 7, "recv", 0, (1, 1), EXCESS, is_alike=len(ranks) > 1)


def job(*found: Delay) -> Delays:
    return Delays(found, 20, 9, 1e9, 0, frozenset(range(8)), frozenset(range(8)))


def test_equals_that_waited_for_one_of_them_are_left_out() -> None:
    found = settled([late(0), late(4, 0.9 * EXCESS), late(5), late(6, 0.1 * EXCESS)], [(0, 1, 2, 3), (4, 5, 6, 7)])
    assert sorted(delay.ranks for delay in found) == [(0,), (4,)]


def test_two_that_were_waited_for_are_both_kept() -> None:
    found = settled([late(4, EXCESS), late(5, EXCESS), late(6)], [(4, 5, 6, 7)])
    assert sorted(delay.ranks for delay in found) == [(4,), (5,)]


def test_those_for_whom_nobody_in_step_waited_are_late_as_one() -> None:
    (found,) = settled([late(5), late(4, waited=2 * EXCESS), late(7)], [(0, 1, 2, 3), (4, 5, 6, 7)])
    assert (found.ranks, found.is_alike, found.communicator) == ((4, 5, 7), True, "4:pp")


@pytest.mark.parametrize(("others", "kept"), [((), 1), ((0, 1), 0), ((5,), 2)], ids=["alone", "a replica", "no other replica"])
def test_of_several_replicas_that_end_late_none_is_first(others: tuple[int, ...], kept: int) -> None:
    """Watchdogs see ends up to a round late: what holds up whole replicas at once lies before them."""
    found = [replace(alike(3, *ranks), by_ends=True, is_alike=False) for ranks in ((4, 5, 6, 7), others) if ranks]
    assert len(settled(found, [(0, 1, 2, 3), (4, 5, 6, 7)])) == kept


def test_equals_of_a_rank_that_they_waited_for_follow_it_in_the_step_that_it_has_no_record_of() -> None:
    found = without_followers({3: (late(4, EXCESS),), 5: (alike(5, 5, 6, 7), alike(5, 0, 1))}, [(0, 1, 2, 3), (4, 5, 6, 7)])
    assert {step: [delay.ranks for delay in each] for step, each in found.items()} == {3: [(4,)], 5: [(0, 1)]}


@pytest.mark.parametrize(
    "found", [[late(4), late(0)], [late(4)], [late(4), late(5, transfer=True)], []], ids=["groups", "one", "transfer", "none"]
)
def test_what_is_not_of_one_group_stays(found: list[Delay]) -> None:
    assert list(settled(found, [(0, 1, 2, 3), (4, 5, 6, 7)])) == found


@pytest.mark.parametrize(
    ("others", "is_data"),
    [([alike(5, 0, 1)], True), ([alike(5, 4, 5)], False), ([alike(5, 0)], False), ([alike(3, 0, 1)], False), ([], False)],
    ids=["others in another step", "the same", "one rank", "others in the same step", "nobody else"],
)
def test_lateness_that_goes_from_group_to_group_is_of_samples(others: list[Delay], is_data: bool) -> None:
    first = alike(3, 4, 5)
    assert moves(job(first, *others), first) is is_data
