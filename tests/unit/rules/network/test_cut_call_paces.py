"""Collectives of pairs of hosts, made up, of which the record of one member ends early, or that become slow at the end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from forensics.case.database import insert_rows
from forensics.rules.reductions.network.call_paces import LEAST_FACTOR, LEAST_SHARE, CallPaces, call_paces
from forensics.rules.reductions.network.slow_members import slow_members
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.steps.times import StepTimes
from forensics.rules.reductions.steps.traced import TracedRecords
from tests.recordings.cases import new_case

MS = 1_000_000
PAIRS = tuple((rank, rank + 8) for rank in range(8))
CUT, PARTNER = PAIRS[3]
CALLS = 40
Took = Callable[[int, int], int]
"""Milliseconds of the transfer of a pair, by the first rank and the number of the call."""


_CALL = "source_id locator rank communicator sequence enqueued_ns duration_ns kind input_sizes is_p2p state snapshot backend"


def paces(took: Took, cut_at: int = 18, waits_ms: int = 0, step_ms: int = 100) -> CallPaces:
    """All come at once, every 100 ms; the other member of the pair that is cut waits in later calls for `waits_ms` more."""
    ranks = {rank: pair[0] for pair in PAIRS for rank in pair}
    known = [(rank, number) for rank in ranks for number in range(cut_at if rank == CUT else CALLS)]
    calls: list[tuple[object, ...]] = [
        (
            *(rank, number, rank, f"dp{ranks[rank]}", number, number * 100 * MS),
            (took(ranks[rank], number) + (waits_ms if rank == PARTNER and number >= cut_at else 0)) * MS,
            *("all_reduce", "[[9]]", False, "done", 0, "nccl"),
        )
        for rank, number in known
    ]
    with new_case() as case:
        insert_rows(
            case, "members", "communicator rank position", [(f"dp{low}", rank, rank // 8) for rank, low in ranks.items()]
        )
        files = [(rank, f"{rank}.fr", f"host{rank // 8}", rank, "fr", "ok", CALLS) for rank in ranks]
        insert_rows(case, "sources", "source_id path host rank kind status rows", [*files])
        insert_rows(case, "operations", _CALL, calls)
        roster = Roster({rank: RankFacts(rank, host=f"host{rank // 8}") for rank in ranks}, len(ranks))
        steps = StepTimes({}, np.arange(2), np.full(2, step_ms * 1e6))
        return call_paces(case, roster, TracedRecords({}), steps)


def slow(found: CallPaces) -> list[tuple[int, ...]]:
    return [each.ranks for each in slow_members(found, LEAST_FACTOR, LEAST_SHARE)]


def of_pair(slow_ms: int, first: int = 0, last: int = CALLS) -> Took:
    return lambda rank, number: slow_ms if rank == CUT and first <= number < last else 10


def test_a_pair_that_was_slow_until_its_record_was_cut_is_slow() -> None:
    found = paces(of_pair(30))
    assert slow(found) == [(CUT, PARTNER)]
    (pair,) = (each for each in found.compared if each.ranks == (CUT, PARTNER))
    assert (pair.took_ns, pair.later_ns, pair.usual_ns) == (30 * MS, 30 * MS, 10 * MS)


def test_one_whose_other_member_is_fast_afterwards_is_so_no_longer() -> None:
    assert not slow(paces(of_pair(30, last=18)))


def test_one_that_was_as_fast_as_others_is_not_cleared() -> None:
    """It may be slow since, and the other member wait in each call for that."""
    assert all(PARTNER not in each.ranks for each in paces(of_pair(10), waits_ms=50).compared)


def test_one_that_was_slow_while_all_were_is_not_slow() -> None:
    def all_slow_at_first(_: int, number: int) -> int:
        return 30 if number < 18 else 10

    assert not slow(paces(all_slow_at_first, waits_ms=50))
    assert not slow(paces(all_slow_at_first, cut_at=12, waits_ms=50))


def test_one_that_became_fast_before_the_cut_is_not_slow() -> None:
    assert not slow(paces(of_pair(30, last=8), waits_ms=50))


def test_a_pair_that_became_slow_in_the_last_steps_is_slow() -> None:
    found = paces(of_pair(30, first=CALLS - 3), cut_at=CALLS)
    assert slow(found) == [(CUT, PARTNER)]
    (pair,) = (each for each in found.compared if each.ranks == (CUT, PARTNER))
    assert (pair.took_ns, pair.calls, pair.span_ns, pair.usual_ns) == (30 * MS, 3, 300 * MS, 10 * MS)


@pytest.mark.parametrize(
    ("took", "step_ms"),
    [
        (of_pair(30, first=CALLS - 2), 100),
        (of_pair(30, first=CALLS - 6, last=CALLS - 1), 100),
        (of_pair(15, first=CALLS - 3), 100),
        (of_pair(30, first=CALLS - 3), 1000),
        (lambda rank, number: 30 if rank < CUT + 1 and number >= CALLS - 3 else 10, 100),
        (lambda rank, number: 30 if number >= CALLS - 3 else 10, 100),
    ],
    ids=["two calls", "the last one is usual", "by little", "within a step", "as half of all", "as all others"],
)
def test_what_was_slow_at_the_end_by_chance_or_with_others_is_not_slow(took: Took, step_ms: int) -> None:
    assert not slow(paces(took, cut_at=CALLS, step_ms=step_ms))
