"""Which of several late ranks made the others late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from forensics.rules.reductions.arrivals.late_roots import in_step, roots, with_silent
from forensics.rules.reductions.arrivals.lateness import Lateness, Latenesses
from forensics.rules.reductions.ranks.roster import RankFacts, Roster

MS = 1_000_000
LINKED = frozenset({(0, 2), (2, 0), (1, 3), (3, 1)})


def late(rank: int, lost: float, members: tuple[int, ...], group: str) -> Lateness:
    return Lateness(rank, group, "all_reduce", members, 20, 20, int(lost * MS), 0.5, 30 * MS, "dump")


def rooted(found: Sequence[Lateness], linked: frozenset[tuple[int, int]] = frozenset()) -> list[tuple[int, tuple[int, ...]]]:
    late = Latenesses(tuple(found), linked)
    return [(item.rank, others) for item, others in roots(late, lambda item: item.lost_ns >= 100 * MS)]


def test_who_waits_for_a_late_rank_in_a_group_of_its_own_is_late_elsewhere() -> None:
    """Rank 1 waits for rank 0 in their pair, and comes late to rank 3 for it."""
    found = [late(0, 900, (0, 1), "pair"), late(0, 800, (0, 2), "a"), late(1, 790, (1, 3), "b")]
    assert rooted(found) == [(0, ())]


def test_late_ranks_of_other_groups_are_others_faults() -> None:
    found = [late(0, 900, (0, 1), "a"), late(4, 500, (4, 5), "b")]
    assert [rank for rank, _ in rooted(found)] == [0, 4]


def test_what_comes_late_through_messages_is_passed_on() -> None:
    clear = [late(0, 900, (0, 1), "a"), late(2, 500, (2, 3), "b")]
    assert rooted(clear, LINKED) == [(0, ())]
    alike = [late(0, 900, (0, 1), "a"), late(2, 800, (2, 3), "b")]
    assert rooted(alike, LINKED) == [(0, (2,))]


def test_a_little_lateness_passes_on_what_it_is_not_named_for() -> None:
    found = [late(2, 900, (2, 4), "a"), late(3, 800, (3, 5), "b"), late(2, 50, (0, 2), "pair")]
    assert rooted(found, frozenset({(0, 3)})) == [(2, (3,))]
    assert rooted(found[:2], frozenset({(0, 3)})) == [(2, ()), (3, ())]


TENSOR = late(3, 150, (2, 3), "tensor")
REDUCED = [late(2, 950, (0, 2), "a"), late(3, 900, (1, 3), "b"), late(6, 890, (4, 6), "c"), late(7, 880, (5, 7), "d")]
TURNS = late(2, 140, (2, 3), "tensor")


@pytest.mark.parametrize(
    ("within", "expected"),
    [
        ([TENSOR], [(3, ())]),
        ([], [(2, (6,)), (3, (7,))]),
        ([replace(TENSOR, typical_ns=5 * MS)], [(2, (6,)), (3, (7,))]),  # too little for what it costs
        ([TENSOR, TURNS], [(2, (6, 7))]),  # both are the last at times: neither holds the other up
        ([TENSOR, replace(TURNS, lost_ns=20 * MS, late=1)], [(3, ())]),  # once
        ([replace(TENSOR, members=(1, 3))], [(2, (6,)), (3, (7,))]),  # whom it is late for are late nowhere else
    ],
)
def test_who_is_late_to_its_tensor_peers_makes_them_late(
    within: list[Lateness], expected: list[tuple[int, tuple[int, ...]]]
) -> None:
    """All ranks of two stages come late to the reduction of gradients, by nearly as much; rank 3 alone to its tensor peer."""
    messages = frozenset({(2, 6), (6, 2), (3, 7), (7, 3)})
    assert rooted([*REDUCED, *within], messages) == expected


@pytest.mark.parametrize(("own", "expected"), [({2}, [(0, ()), (2, ())]), (set(), [(0, ())]), ({3}, [(0, ())])])
def test_what_arose_in_a_rank_itself_was_not_passed_on(own: set[int], expected: list[tuple[int, tuple[int, ...]]]) -> None:
    found = Latenesses((late(0, 900, (0, 1), "a"), late(2, 500, (2, 3), "b")), LINKED)
    kept = roots(found, lambda item: item.lost_ns >= 100 * MS, lambda item: item.rank in own)
    assert [(item.rank, others) for item, others in kept] == expected


@pytest.mark.parametrize(
    ("own", "lost", "expected"),
    [({0}, 880, [0]), (set(), 880, [0, 3]), ({0, 3}, 880, [0, 3]), ({0}, 1500, [0, 3])],
    ids=["a message delays it", "nobody is late by itself", "late to nearly all calls as well", "later than its sender"],
)
def test_who_receives_of_a_rank_that_is_late_by_itself_does_not_lead_its_peers(
    own: set[int], lost: int, expected: list[int]
) -> None:
    """Rank 3 gets its messages of rank 0, and is the last within its pair once in each pass."""
    first = replace(late(0, 900, (0, 1), "first"), calls=900, late=900)
    found = Latenesses((first, late(3, lost, (3, 5), "a"), late(2, lost, (2, 4), "b"), TENSOR), frozenset({(0, 3)}))
    kept = roots(found, lambda item: item.lost_ns >= 300 * MS, lambda item: item.rank in own)
    assert sorted(item.rank for item, _ in kept) == expected


@pytest.mark.parametrize(("own", "beside"), [(set[int](), (2,)), ({0}, ())])
def test_beside_a_rank_that_is_late_by_itself_nobody_else_may_be_meant(own: set[int], beside: tuple[int, ...]) -> None:
    found = Latenesses((late(0, 900, (0, 1), "a"), late(2, 800, (2, 3), "b")), LINKED)
    kept = roots(found, lambda item: item.lost_ns >= 100 * MS, lambda item: item.rank in own)
    assert [(item.rank, others) for item, others in kept] == [(0, beside)]


CUT = Lateness(3, "tensor", "all_reduce", (2, 3, 4), 900, 900, 300 * MS, 0.5, 2 * MS, "dump")
ELSEWHERE = [late(8, 950, (8, 9), "z"), late(2, 920, (0, 2), "a"), late(4, 900, (1, 4), "b")]
PASSED_ON = frozenset({(8, 2), (2, 8), (8, 3), (3, 8), (8, 4), (4, 8)})


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([*ELSEWHERE, CUT], [(3, ())]),
        (ELSEWHERE, [(8, (2, 4))]),
        # It is late among its peers by far less of the time than these are elsewhere.
        ([*ELSEWHERE, replace(CUT, share=0.2)], [(8, (2, 4))]),
        # One of its peers is late by as much, and the other one is not.
        ([*ELSEWHERE[:2], CUT], [(8, (2,))]),
        # They take turns.
        ([*ELSEWHERE, CUT, replace(CUT, rank=2, lost_ns=250 * MS)], [(8, (2, 4))]),
    ],
    ids=["all of its peers", "no such group", "too little", "one peer", "turns"],
)
def test_a_cut_record_clears_nobody_who_is_last_among_its_peers(
    found: list[Lateness], expected: list[tuple[int, tuple[int, ...]]]
) -> None:
    """Rank 3 is cut before it met others often enough; what it costs in the fewer calls is as much of the time."""
    assert rooted(found, PASSED_ON) == expected


def late_at(rank: int, *members: int) -> Lateness:
    return Lateness(rank, "dp", "reduce_scatter", members, 9, 9, 9 * MS, 0.3, MS, f"{rank}.fr")


@pytest.mark.parametrize(
    ("late", "found"),
    [
        ([late_at(0, 0, 4), late_at(1, 1, 5)], [(0, (1, 2, 3))]),
        ([late_at(0, 0, 4), late_at(6, 2, 6)], [(0, ()), (6, ())]),
        ([late_at(0, 0, 4), late_at(1, 0, 1, 2, 3)], [(0, ()), (1, ())]),
        ([replace(late_at(0, 0, 4), within=late_at(0, 0, 1, 2, 3)), late_at(1, 1, 5)], [(0, ()), (1, ())]),
    ],
    ids=["of one group", "of two groups", "one is last within it", "one leads"],
)
def test_late_ranks_of_a_group_in_step_are_not_told_apart(
    late: list[Lateness], found: list[tuple[int, tuple[int, ...]]]
) -> None:
    """Each comes late to the calls with its replica by as much, and nothing shows who is last among them."""
    groups = [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert [
        (item.rank, others) for item, others in in_step([(item, ()) for item in late], groups, frozenset(), range(8))
    ] == found


@pytest.mark.parametrize(
    ("lost_ms", "found"), [(8, [(0, (1, 2, 3, 9))]), (5, [(0, (1, 2, 3))]), (12, [(0, (1, 2, 3)), (9, ())])],
    ids=["as late", "less", "later by itself"],
)  # fmt: skip
def test_who_receives_of_a_late_group_is_late_by_it(lost_ms: int, found: list[tuple[int, tuple[int, ...]]]) -> None:
    """Rank 2, of which nothing is left, works in step with two late ranks and sends to rank 9."""
    late = [late_at(0, 0, 4), late_at(1, 1, 5), replace(late_at(9, 9, 8), lost_ns=lost_ms * MS)]
    of_group = in_step([(item, ()) for item in late], [(0, 1, 2, 3)], frozenset({(2, 9), (9, 2)}), range(10))
    assert [(item.rank, others) for item, others in of_group] == found


@pytest.mark.parametrize(
    ("late", "others"),
    [
        (late_at(0, 0, 4), (2,)),
        (late_at(5, 1, 5), ()),
        (replace(late_at(0, 0, 4), within=late_at(0, 0, 1, 2, 3)), ()),
        (late_at(0, 0, 1, 2, 3), ()),
    ],
    ids=["with one that left nothing", "all are seen", "it leads", "it is last within them"],
)
def test_who_works_in_step_with_one_that_left_no_record_may_be_late_because_of_it(
    late: Lateness, others: tuple[int, ...]
) -> None:
    seen = {0, 1, 3, 4, 5, 6, 7}
    assert in_step([(late, ())], [(0, 1, 2, 3), (4, 5, 6, 7)], frozenset(), seen) == [(late, others)]


def test_a_rank_without_a_record_that_sends_to_a_late_one_may_be_meant() -> None:
    """Ranks 1 and 2 are one of two that are late; rank 3 sends to rank 1, and so does rank 4, whose record shows when."""
    roster = Roster({rank: RankFacts(rank, has_recorder=rank != 3) for rank in range(5)}, 5)
    linked = Latenesses(linked=frozenset({(3, 1), (4, 1), (1, 3)}))
    assert with_silent((1, 2), linked, roster) == (2, 3)
