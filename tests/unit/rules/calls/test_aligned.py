"""Arrivals of ranks whose hosts are not known: what quick steps show of their clocks, and what nothing shows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from forensics.case.database import Connection, insert_rows, new_case
from forensics.rules.reductions.arrivals.arrivals import arrivals
from forensics.rules.reductions.arrivals.lateness import Latenesses, of_series

MS = 1_000_000
CALLS = 40
SLOW_FROM = 12
_APART_MS = (0, 5_000, -3_600_000, 70)
_COLUMNS = "source_id locator snapshot rank communicator backend record_id kind input_sizes sequence state enqueued_ns"

Times = npt.NDArray[np.float64]
Work = Callable[[int, int], float]
"""ms that a rank works before a call."""


def even(rank: int, number: int) -> float:
    return 40.0 + (7 * rank + 3 * number) % 5


def slow(rank: int, number: int) -> float:
    return 840.0 if rank == 2 and number >= SLOW_FROM else even(rank, number)


def always_slow(rank: int, number: int) -> float:
    return 840.0 if rank == 2 else even(rank, number)


def all_slow(rank: int, number: int) -> float:
    return even(rank, number) + (800.0 if number >= SLOW_FROM else 0.0)


def waiting_in_calls(work: Work) -> Times:
    """When each rank came to each call, ms: nobody begins the next one before all have come."""
    came, all_came = [], 0.0
    for number in range(CALLS):
        came.append([all_came + work(rank, number) for rank in range(4)])
        all_came = max(came[-1])
    return np.array(came)


def queued(work: Work) -> Times:
    """The same where no host waits: each goes on by itself, however late the others are."""
    return np.cumsum([[work(rank, number) for rank in range(4)] for number in range(CALLS)], axis=0)


def late(came_ms: Times, kind: str = "all_reduce", sizes: Callable[[int, int], str] = lambda *_: "[[4]]") -> Latenesses:
    return of_series(arrivals(case(came_ms + np.array(_APART_MS), kind, sizes)))


def case(came_ms: Times, kind: str, sizes: Callable[[int, int], str]) -> Connection:
    connection = new_case()
    insert_rows(connection, "members", "communicator position rank", [("0", rank, rank) for rank in range(4)])
    insert_rows(
        connection, "sources", "source_id path kind status rows", [(rank, str(rank), "x", "ok", 9) for rank in range(4)]
    )
    begin = 3_600_000 * MS
    rows: list[tuple[object, ...]] = [
        (
            rank,
            number,
            0,
            rank,
            "0",
            "gloo",
            number,
            kind,
            sizes(rank, number),
            number,
            "done",
            begin + int(came_ms[number, rank] * MS),
        )
        for number in range(CALLS)
        for rank in range(4)
    ]
    insert_rows(connection, "operations", _COLUMNS, rows)
    return connection


def test_who_became_late_is_seen_whatever_the_clocks_show() -> None:
    found = late(waiting_in_calls(slow))
    (item,) = found.found
    assert (item.rank, item.late, item.calls) == (2, CALLS - SLOW_FROM, CALLS - SLOW_FROM)
    assert item.typical_ns == pytest.approx(800 * MS, rel=0.2) and item.since_ns is not None


@pytest.mark.parametrize("work", [even, always_slow, all_slow], ids=["nobody", "since the first call", "all alike"])
def test_clocks_that_are_apart_make_nobody_late(work: Work) -> None:
    assert not late(waiting_in_calls(work)).found


def test_who_is_late_since_the_first_call_is_not_ruled_out() -> None:
    assert not late(waiting_in_calls(always_slow)).seen


@pytest.mark.parametrize("work", [even, all_slow], ids=["of a quick job", "of a job that was slow before"])
def test_a_clock_that_was_set_makes_nobody_late(work: Work) -> None:
    came = waiting_in_calls(work)
    came[2 * SLOW_FROM :, 2] += 700
    assert all(item.absorbed for item in late(came).found)


def test_hosts_that_do_not_wait_in_calls_make_nobody_late() -> None:
    assert not late(queued(slow)).found


def test_who_leaves_a_call_before_the_others_come_shows_nothing() -> None:
    assert not late(waiting_in_calls(slow), "broadcast").found


def test_who_works_on_more_tokens_comes_late_to_exchanges_of_any_size() -> None:
    found = late(waiting_in_calls(slow), "all_to_all", lambda rank, number: f"[[{40 * rank + number}, 32]]")
    assert [item.rank for item in found.found] == [2]
