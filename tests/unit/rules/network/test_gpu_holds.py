"""GPUs that take chunks later than those of ranks with the same part, on flows whose times are made up from waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.network.gpu_holds import GpuHold, gpu_holds
from tests.unit.rules.network.made_up_flows import MS, STEP_NS, add, flows_of

PAIRS = 6
Wait = Callable[[int, int], tuple[float, float]]
"""Of rank and step: ms that arrived chunks wait for its GPU, and ms that its own sends wait for credit."""


@pytest.fixture
def connection() -> Iterator[DuckDBPyConnection]:
    with flows_of(2 * PAIRS) as opened:
        yield opened


def pairs(connection: DuckDBPyConnection, steps: int, wait: Wait, channel: int = 0, at_once: int = 1) -> None:
    """Communicators of two ranks each, n and n + PAIRS, that make the same calls at the same time, so many of them at once."""
    rows: list[tuple[object, ...]] = []
    for step in range(steps):
        for rank in range(2 * PAIRS):
            other, place = (rank + PAIRS) % (2 * PAIRS), rank // PAIRS
            consume, credit = (each * MS for each in wait(rank, step))
            begin = step // at_once * STEP_NS
            when = (begin, begin + 50 * MS, 50 * MS, 8)
            for sends in (True, False):
                own = (MS, credit, MS, None, None) if sends else (None, None, None, MS, consume)
                label, ends = f"pair {rank % PAIRS}", (rank, other, place, 1 - place, 2)
                named = (rank, 2 * step + sends + 1000 * channel, label, *ends, channel, sends, "all_reduce")
                rows.append((*named, step + 1, 16, 1 << 20, *when, *own))
    add(connection, rows)


def slow(rank: int, since: int, by_ms: float) -> Wait:
    return lambda each, step: (2.0 + by_ms * (each == rank and step >= since) + (each * 7 + step) % 3 / 10, 0.1)


def only(found: tuple[GpuHold, ...]) -> GpuHold:
    (each,) = found
    return each


def test_a_gpu_that_becomes_slow(connection: DuckDBPyConnection) -> None:
    pairs(connection, 16, slow(8, 8, 20.0))
    found = only(gpu_holds(connection))
    assert (found.rank, found.members, found.calls, found.slow, found.had_onset) == (8, (2, 8), 8, 8, True)
    assert found.typical_ns == pytest.approx(20 * MS, rel=0.02) and found.peers == PAIRS - 1
    assert found.share == pytest.approx(0.2, abs=0.03) and found.since_ns == 8 * STEP_NS


@pytest.mark.parametrize(("at_once", "named"), [(2, [8]), (8, [])], ids=["again and again", "once"])
def test_calls_that_are_under_way_at_once_are_late_once(connection: DuckDBPyConnection, at_once: int, named: list[int]) -> None:
    """A host that stops for a moment holds up all that it has begun."""
    pairs(connection, 16, slow(8, 8, 20.0), at_once=at_once)
    assert [hold.rank for hold in gpu_holds(connection)] == named


def test_what_holds_up_all_of_them_is_no_difference(connection: DuckDBPyConnection) -> None:
    """Work that overlaps with every other call."""
    pairs(connection, 16, lambda rank, step: (60.0 if step % 2 else 2.0, 0.1))
    assert gpu_holds(connection) == ()


def test_a_gpu_whose_way_out_is_full_waits_for_others(connection: DuckDBPyConnection) -> None:
    pairs(connection, 16, lambda rank, step: (22.0, 20.1) if rank == 8 else (2.0, 0.1))
    assert gpu_holds(connection) == ()


def test_a_gpu_one_of_whose_branches_is_full_waits_for_others(connection: DuckDBPyConnection) -> None:
    """In a tree a rank sends to several: that its way up is free does not make it slow."""
    pairs(connection, 16, lambda rank, step: (22.0, 20.1) if rank == 8 else (2.0, 0.1))
    connection.execute("""
        INSERT INTO ended_flows BY NAME SELECT * REPLACE (locator + 5000 AS locator, 3 AS other, 100000 AS credit_ns)
        FROM ended_flows WHERE sends AND rank = 8""")
    assert gpu_holds(connection) == ()


def test_of_a_chain_of_slow_ranks_the_first_is_named(connection: DuckDBPyConnection) -> None:
    """Rank 8 takes chunks late; rank 2, which sends to it, has no room to take its own and waits for credit as long."""
    pairs(connection, 16, lambda rank, step: {8: (22.0, 0.1), 2: (22.0, 20.2)}.get(rank, (2.0, 0.1)))
    assert only(gpu_holds(connection)).rank == 8


def test_one_whose_way_out_is_free_when_those_of_its_peers_are_full(connection: DuckDBPyConnection) -> None:
    """All GPUs take chunks as ever; what the peers send waits for credit, for a slow link holds up whom they send to."""
    pairs(connection, 16, lambda rank, step: (2.0, 0.1 if rank == 8 or step < 8 else 70.0))
    assert gpu_holds(connection) == ()


def test_single_accidents_accuse_nobody(connection: DuckDBPyConnection) -> None:
    pairs(connection, 16, lambda rank, step: (80.0 if rank == 8 and step % 5 == 2 else 2.0, 0.1))
    assert gpu_holds(connection) == ()


def test_where_many_are_slow_nobody_can_say_what_is_usual(connection: DuckDBPyConnection) -> None:
    pairs(connection, 16, lambda rank, step: (22.0 if rank in (7, 8) and step >= 8 else 2.0, 0.1))
    assert gpu_holds(connection) == ()


def test_a_call_that_too_few_make_is_not_compared(connection: DuckDBPyConnection) -> None:
    pairs(connection, 16, slow(8, 8, 20.0))
    connection.execute("DELETE FROM ended_flows WHERE communicator IN ('pair 0', 'pair 1', 'pair 3')")
    assert gpu_holds(connection) == ()


def test_one_of_four_channels_that_takes_75_ms_instead_of_30(connection: DuckDBPyConnection) -> None:
    """Mycroft section 8, case one: one channel is slow for the GPU delays data in it, the others rule the network out."""
    for channel in range(4):
        pairs(connection, 12, slow(8, 4, 45.0) if channel == 2 else slow(8, 99, 0.0), channel)
    found = only(gpu_holds(connection))
    assert (found.rank, found.channel, found.slow) == (8, 2, 8)
    assert found.typical_ns == pytest.approx(45 * MS, rel=0.02)


def test_a_gpu_that_is_slow_in_all_its_channels_has_none_of_its_own(connection: DuckDBPyConnection) -> None:
    for channel in range(4):
        pairs(connection, 12, slow(8, 4, 45.0), channel)
    assert only(gpu_holds(connection)).channel is None
