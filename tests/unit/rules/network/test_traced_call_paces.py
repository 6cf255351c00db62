"""Collectives of pairs of hosts in traces of a profiler: the pair whose transfers take longer, and what is too short."""

from __future__ import annotations

import pytest

from forensics.case.database import insert_rows
from forensics.rules.reductions.network.call_paces import LEAST_FACTOR, LEAST_SHARE, call_paces
from forensics.rules.reductions.network.slow_members import slow_members
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.steps.times import step_times
from forensics.rules.reductions.steps.traced import traced_records
from tests.recordings.cases import new_case

US = 1_000
PAIRS = tuple((rank, rank + 8) for rank in range(8))
SLOW = PAIRS[3]
CALLS = 24
_CALL = "source_id locator rank communicator sequence entered_ns device_start_ns device_end_ns duration_ns kind input_sizes"
_MORE = "is_p2p state backend"


def slow(
    took_us: int, *, kind: str = "kineto", backend: str = "nccl", is_numbered: bool = True, marked: int = CALLS
) -> list[tuple[int, ...]]:
    """Who is slow where the calls of one pair take so long, and those of the others 300 us, every 20 ms, a step each.

    So many steps of the second host of the pair are `marked`.
    """
    calls: list[tuple[object, ...]] = []
    for pair in PAIRS:
        lasts = (took_us if pair == SLOW else 300) * US
        for number in range(CALLS):
            for rank in pair:
                begin = number * 20_000 * US + rank * US
                times = (begin, begin, begin + lasts, lasts)
                calls.append(
                    (
                        rank,
                        number,
                        rank,
                        f"dp{pair[0]}",
                        number if is_numbered else None,
                        *times,
                        "all_reduce",
                        "[[9]]",
                        False,
                        "done",
                        backend,
                    )
                )
    ranks = {rank: pair[0] for pair in PAIRS for rank in pair}
    with new_case() as case:
        insert_rows(
            case, "members", "communicator rank position", [(f"dp{low}", rank, rank // 8) for rank, low in ranks.items()]
        )
        files = [(rank, f"host{rank // 8}_{rank}.json", f"host{rank // 8}", rank, kind, "ok", CALLS) for rank in ranks]
        insert_rows(case, "sources", "source_id path host rank kind status rows", [*files])
        insert_rows(case, "operations", f"{_CALL} {_MORE}", calls)
        until = {rank: marked if rank == SLOW[1] else CALLS for rank in ranks}
        marks = [(rank, rank, step, step * 20_000 * US, 20_000 * US) for rank in ranks for step in range(until[rank])]
        insert_rows(case, "steps", "source_id rank step begin_ns wall_ns", [*marks])
        roster = Roster({rank: RankFacts(rank, host=f"host{rank // 8}") for rank in ranks}, len(ranks))
        found = call_paces(case, roster, traced_records(case), step_times({}))
    return [each.ranks for each in slow_members(found, LEAST_FACTOR, LEAST_SHARE)]


def test_the_pair_whose_kernels_last_longer_once_both_are_there_is_slow() -> None:
    assert slow(6000) == [SLOW]


def test_calls_that_have_no_number_are_counted_by_steps() -> None:
    assert slow(6000, is_numbered=False) == [SLOW]
    assert not slow(6000, is_numbered=False, marked=0)


@pytest.mark.parametrize("took_us", [300, 500, 950])
def test_calls_of_less_than_a_millisecond_are_not(took_us: int) -> None:
    assert not slow(took_us)


def test_calls_of_a_backend_on_hosts_are_not_compared() -> None:
    assert not slow(6000, backend="gloo")
