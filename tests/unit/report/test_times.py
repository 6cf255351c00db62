"""Lengths of time with as many digits as they are worth, and round moments for axes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.report import times

MS = 1_000_000


@pytest.mark.parametrize(
    ("length_ns", "shown"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (3 * MS, "3 ms"),
        (1250 * MS, "1.25 s"),
        (1_518_400_000, "1.518 s"),
        (898_656_000, "898.7 ms"),
        (-12_345_678, "-12.35 ms"),
        (100 * MS, "100 ms"),
        (120 * 1000 * MS, "120 s"),
        (98_765 * 1000 * MS, "98765 s"),
    ],
)
def test_a_length_has_four_digits_at_most(length_ns: int, shown: str) -> None:
    assert times.duration(length_ns) == shown


@given(st.integers(8, 10**19))
def test_marks_are_round_and_few(length_ns: int) -> None:
    found = times.marks(length_ns)
    assert found[0] == 0 and length_ns - found.step < found[-1] <= length_ns
    assert 4 <= len(found) <= 9 and str(found.step).rstrip("0") in ("1", "2", "5")
