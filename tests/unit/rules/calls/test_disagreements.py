"""Votes and shifts."""

from __future__ import annotations

from forensics.rules.reductions.mismatch.disagreements import shift, vote


def test_the_majority_is_the_reference_whatever_the_order() -> None:
    assert vote({0: "broadcast", 1: "all_reduce", 2: "all_reduce", 3: "all_reduce"}) == (1, 2, 3)
    assert vote({3: "all_reduce", 2: "all_reduce", 1: "all_reduce", 0: "broadcast"}) == (1, 2, 3)


def test_an_even_split_is_undecidable() -> None:
    assert vote({0: "a", 1: "a", 2: "b", 3: "b"}) == ()


def test_a_plurality_of_three_camps_decides() -> None:
    assert vote({0: "a", 1: "a", 2: "b", 3: "c"}) == (0, 1)


def numbered(*calls: str) -> dict[int, str]:
    return dict(enumerate(calls, 1))


def test_a_skipped_call_shows_in_what_comes_next() -> None:
    assert shift(numbered("a", "b", "c", "d"), numbered("a", "c"), 2) == "missing"


def test_an_extra_call_shows_in_what_comes_next() -> None:
    assert shift(numbered("a", "b", "c"), numbered("a", "x", "b"), 2) == "extra"


def test_at_the_end_the_usual_successor_decides() -> None:
    """Nobody got further: earlier steps tell that c follows b."""
    reference = numbered("a", "b", "c", "a", "b")
    assert shift(reference, numbered("a", "b", "c", "a", "c"), 5) == "missing"


def test_a_pattern_of_period_two_cannot_tell_a_skip_from_an_extra_call() -> None:
    reference = numbered("a", "b", "a", "b", "a", "b", "a")
    assert shift(reference, numbered("a", "b", "a", "b", "a", "b", "b"), 7) == "either"


def test_an_unknown_call_is_no_shift() -> None:
    assert shift(numbered("a", "b", "a", "b"), numbered("a", "b", "a", "x"), 4) is None
