"""Rows of calls that come in pieces, in any order, or in their order: held against sorting all of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from forensics.rules.reductions.calls.order import Column, are_by_rank, order_by_rank, taken
from forensics.rules.reductions.waits.order_history import _are_more, _fell, _fell_alone


def rings(seed: int, ranks: int = 6, calls: int = 400) -> list[Column]:
    """Columns rank, time and locator of rings that lie one after the other; several calls are of one moment."""
    draw = np.random.default_rng(seed)
    times = np.sort(draw.integers(0, calls // 2, (ranks, calls)), axis=1).reshape(-1)
    return [np.repeat(draw.permutation(ranks), calls), times, np.tile(np.arange(calls), ranks)]


def shuffled(columns: list[Column], cuts: np.ndarray, seed: int) -> list[Column]:
    bounds = [0, *np.unique(cuts).tolist(), len(columns[0])]
    pieces = [slice(*each) for each in pairwise(bounds)]
    order = np.random.default_rng(seed).permutation(len(pieces)).tolist()
    return [np.concatenate([column[pieces[at]] for at in order]) for column in columns]


def by_rank(columns: list[Column]) -> list[tuple[int, ...]]:
    """Rows by rank, which may come in any order."""
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    return sorted(rows, key=lambda row: row[0])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("cuts", [0, 1, 7, 2000], ids=["none", "one", "pieces", "rows"])
def test_rows_are_in_the_order_of_a_sort(seed: int, cuts: int) -> None:
    columns = rings(seed)
    came = shuffled(columns, np.random.default_rng(seed).integers(1, len(columns[0]), cuts), seed)
    order = order_by_rank(*came)
    found = [taken(column, order) for column in came]
    assert are_by_rank(*found)
    sort = np.lexsort(tuple(came[::-1]))
    assert by_rank(found) == by_rank([column[sort] for column in came])
    assert isinstance(order, np.ndarray) == (cuts == 2000)


def test_two_sources_of_one_rank_that_overlap_are_sorted() -> None:
    rank, time = np.zeros(400, np.int64), np.concatenate([np.arange(0, 400, 2), np.arange(1, 400, 2)])
    assert taken(time, order_by_rank(rank, time)).tolist() == list(range(400))


def test_no_rows_have_an_order() -> None:
    empty = np.empty(0, np.int64)
    assert taken(empty, order_by_rank(empty, empty)).tolist() == []


def test_a_first_pending_call_of_a_communicator_outside_the_circle_breaks_no_row() -> None:
    assert not _are_more([])
    assert _are_more([*"abababab", "a", "a"]) and not _are_more("abababa")


def made(communicators: str) -> list[tuple[str, str, str]]:
    return [(f"{each} all_reduce", each, "done") for each in communicators]


@pytest.mark.parametrize(
    ("communicators", "expected"),
    [
        ("aab" * 9 + "abab", {"a"}),  # one call of two was left out, twice
        ("aab" * 9 + "abc" + "ab", {"a"}),  # what is outside of the circle says nothing
        ("aab" * 9 + "a", set()),  # the last row goes on
        ("aab" * 9 + "ab", set()),  # it may have come to its end
        ("ab" + "aab" * 9, set()),  # the record begins anywhere
        ("aabab" * 9 + "ab", set()),  # it always was one or two
        ("aab" * 9 + "ab" * 9, set()),  # that was long ago: its peers would have met it
        ("aab" * 2 + "abab", set()),  # no habit yet
        ("aab" * 9 + "aaab" + "ab", set()),  # more calls are another matter
    ],
)
def test_rows_that_became_shorter_than_ever_before(communicators: str, expected: set[str]) -> None:
    assert _fell(made(communicators), "ab") == expected


def test_members_that_make_fewer_calls_alike_left_no_order() -> None:
    fell: dict[int, frozenset[str]] = {0: frozenset(), 1: frozenset("a"), 2: frozenset("a"), 3: frozenset("b")}
    assert [*_fell_alone(fell)] == [3]
