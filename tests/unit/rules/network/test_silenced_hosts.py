"""A host whose log ends in the midst of work just when all others stand still, and logs that end apart for other reasons."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from forensics.rules.reductions.ranks.shim_logs import ShimLog, heartbeat_gaps

S = 1_000_000_000


def log(rank: int, end_s: float, active_s: float | None, *, host: str | None = None, copied_s: float | None = None) -> ShimLog:
    end, active, copied = (None if at is None else int(at * S) for at in (end_s, active_s, copied_s))
    return ShimLog(rank, rank, f"{rank}.frx", host or f"n{rank}", 0, end or 0, copied, False, active, active, None, frozenset())


def gaps(ends: Mapping[int, tuple[float, float]], copied_s: float | None = None) -> Mapping[int, int]:
    return {
        rank: round(gap / S)
        for rank, gap in heartbeat_gaps([log(rank, *at, copied_s=copied_s) for rank, at in ends.items()]).items()
    }


def test_a_host_that_falls_silent_while_all_others_begin_to_wait_for_it() -> None:
    assert gaps({0: (120, 100.4), 1: (100, 99.9), 2: (121, 100.2), 3: (120, 100)}) == {1: 20}


def test_all_ranks_of_the_host() -> None:
    logs = [log(rank, 120 if rank < 4 else 100, 100, host=f"n{rank // 2}") for rank in range(6)]
    found = heartbeat_gaps(logs)
    assert {rank for rank, gap in found.items() if gap >= 10 * S} == {4, 5}


@pytest.mark.parametrize(
    "ends",
    [
        {0: (120, 119.9), 1: (100, 99.9), 2: (121, 120.8)},
        {0: (120, 60), 1: (100, 60), 2: (121, 60)},
        {0: (120, 100), 1: (101, 81), 2: (121, 100)},
        {0: (104, 100), 1: (100, 99.9), 2: (104, 100)},
        {0: (120, 100), 1: (100, 99.9)},
        {0: (120, 100), 1: (100, 99.9), 2: (100, 99.8), 3: (121, 100)},
    ],
    ids=[
        "copied before the others, which move",
        "copied before the others in a stall",
        "a clock that is behind",
        "hardly longer",
        "two hosts: either may have been copied later",
        "two hosts ended",
    ],
)
def test_logs_that_end_apart_for_other_reasons(ends: dict[int, tuple[float, float]]) -> None:
    assert gaps(ends) == {}


def test_where_a_manifest_tells_when_logs_were_copied_nothing_else_counts() -> None:
    assert gaps({0: (120, 100), 1: (100, 99.9), 2: (121, 100)}, copied_s=121)[1] == 21
    assert gaps({0: (100, 100), 1: (100, 99.9), 2: (100, 100)}, copied_s=100) == {0: 0, 1: 0, 2: 0}
