"""Intervals of shares."""

from __future__ import annotations

import pytest

from forensics.fixtures.suites.intervals import share, wilson, with_interval


def test_intervals_are_those_of_wilson() -> None:
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(45, 50) == pytest.approx((0.7864, 0.9565), abs=1e-4)


def test_a_share_is_stated_with_its_interval() -> None:
    assert share(47, 50) == "47 of 50 (84-98 %)"
    assert with_interval(1, 2) == {"count": 1, "of": 2, "share": 0.5, "interval": list(wilson(1, 2))}


def test_of_nothing_there_is_no_share() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert share(0, 0) == "-"
    assert with_interval(0, 0)["share"] is None
