"""Operators cut out of the traffic of queue pairs (Pulse algorithm 1), against the printed algorithm where that is right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.rules.reductions.epochs.cells import Cells, in_all
from forensics.rules.reductions.epochs.segments import Segments, quantile, segments

DELTA = 10


def cells(*rows: tuple[int, int, int]) -> Cells:
    """Of rows of series, epoch and bytes."""
    return Cells(*(np.array(column, np.int64) for column in zip(*rows, strict=True)))


def printed(rows: list[tuple[int, int]], delta: int, size: int) -> list[tuple[int, int]]:
    """Starts and ends of one series as algorithm 1 is printed, which leaves the last operator without an end."""
    starts, ends, last, moved = list[int](), list[int](), 0, 0
    for at, value in rows:
        if at - last >= delta and moved >= size:
            ends.append(last)
            moved = 0
        if not moved:
            starts.append(at)
        last, moved = at, moved + value
    return list(zip(starts, [*ends, last], strict=True))


def spans(found: Segments) -> list[tuple[int, int]]:
    return list(zip(found.begin.tolist(), found.end.tolist(), strict=True))


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 50)), min_size=1, max_size=60),
    st.integers(1, 300),
)
def test_it_cuts_as_the_printed_algorithm(steps: list[tuple[int, int]], size: int) -> None:
    epochs = np.cumsum([step for step, _ in steps]).tolist()
    rows = [(epoch, moved) for epoch, (_, moved) in zip(epochs, steps, strict=True)]
    one = cells(*((3, epoch, moved) for epoch, moved in rows))
    found = segments(one, DELTA, epochs[-1] + DELTA, np.full(len(one), size))
    assert spans(found) == printed(rows, DELTA, size)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 200), st.integers(1, 50)), max_size=80), st.integers(1, 300))
def test_series_do_not_touch_each_other(rows: list[tuple[int, int, int]], size: int) -> None:
    once = sorted({(series, epoch): moved for series, epoch, moved in rows}.items())
    all_rows = [(series, epoch, moved) for (series, epoch), moved in once]
    together = cells(*all_rows) if all_rows else Cells(*(np.empty(0, np.int64) for _ in range(3)))
    found = segments(together, DELTA, 300, np.full(len(together), size))
    apart = [
        span
        for series in sorted({row[0] for row in all_rows})
        for one in [cells(*(row for row in all_rows if row[0] == series))]
        for span in spans(segments(one, DELTA, 300, np.full(len(one), size)))
    ]
    assert spans(found) == apart
    assert int(found.bytes.sum()) == sum(row[2] for row in all_rows)


def test_what_one_operator_moves_in_excess_is_not_counted_for_the_next() -> None:
    """Headers and repeated packets: a hundred operators of 1030 bytes where 1000 are expected."""
    rows = [(0, 100 * number, 1030) for number in range(100)]
    found = segments(cells(*rows), DELTA, 10_000, np.full(100, 1000))
    assert found.bytes.tolist() == [1030] * 100


def test_a_gap_inside_an_operator_does_not_end_it() -> None:
    found = segments(cells((0, 0, 400), (0, 50, 600), (0, 100, 1000)), DELTA, 1000, np.full(3, 1000))
    assert spans(found) == [(0, 50), (100, 100)]


def test_an_operator_that_moved_too_little_is_open() -> None:
    """That is what a transfer that stopped looks like, however long ago it was."""
    found = segments(cells((0, 0, 1000), (0, 100, 400)), DELTA, 100_000, np.full(2, 1000))
    assert found.open.tolist() == [False, True]


def test_an_operator_at_the_end_of_the_capture_is_open() -> None:
    assert segments(cells((0, 0, 1000)), DELTA, 5).open.tolist() == [True]
    assert segments(cells((0, 0, 1000)), DELTA, 10).open.tolist() == [False]


def test_the_busiest_epochs_of_each_operator() -> None:
    rows = [(0, epoch, 10 * (epoch + 1)) for epoch in range(10)] + [(1, epoch, 7) for epoch in range(3)]
    one = cells(*rows)
    assert quantile(one, segments(one, DELTA, 1000), 0.5).tolist() == [60, 7]


@pytest.mark.parametrize("apart", [1, 10_000, 1 << 61])
def test_all_of_a_direction_in_an_epoch_counts_together_however_far_epochs_lie_apart(apart: int) -> None:
    """Series 0 and 2 are sends, 1 receives."""
    found = in_all(cells((0, 0, 5), (0, apart, 7), (1, 0, 11), (2, apart, 13), (2, 2 * apart, 17)))
    assert found.bytes.tolist() == [5, 20, 11, 20, 17]
