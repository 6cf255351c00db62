from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.model import Members
from forensics.report import ranks


@pytest.mark.parametrize(
    ("given_ranks", "shown"),
    [
        ([], "none"),
        ([7], "7"),
        ([0, 1, 2, 3], "0-3"),
        ([3, 1, 0], "0-1,3"),
        ([*range(127), *range(128, 256)], "0-126,128-255"),
        ([5, 5, 6], "5-6"),
    ],
)
def test_ranges(given_ranks: list[int], shown: str) -> None:
    assert ranks.fold(given_ranks) == shown


def test_scattered_ranks_are_capped_and_the_rest_counted() -> None:
    scattered = range(0, 8192, 8)
    assert ranks.fold(scattered) == "0,8,16,24,32,40,48,56 (+1016 more, --all-ranks)"
    assert ranks.fold(scattered, most=None).count(",") == 1023


def test_phrases() -> None:
    assert ranks.phrase(()) == "no rank"
    assert ranks.phrase((4,), Members.ONE_OF) == "rank 4"
    assert ranks.phrase((4, 5), Members.ONE_OF) == "one of ranks 4-5"


@given(st.sets(st.integers(0, 300)))
def test_a_full_list_says_exactly_its_ranks(chosen: set[int]) -> None:
    said: set[int] = set()
    for part in ranks.fold(chosen, most=None).split(","):
        low, _, high = part.partition("-")
        said |= set(range(int(low), int(high or low) + 1)) if part != "none" else set()
    assert said == chosen


@given(st.sets(st.integers(0, 300)), st.integers(0, 5))
def test_a_capped_list_accounts_for_every_rank(chosen: set[int], most: int) -> None:
    shown, _, rest = ranks.fold(chosen, most).partition(" (+")
    count = 0
    for part in shown.split(","):
        low, _, high = part.partition("-")
        count += int(high or low) - int(low) + 1 if part not in ("none", "") else 0
    assert count + int(rest.partition(" ")[0] or 0) == len(chosen)
