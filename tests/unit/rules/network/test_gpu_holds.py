"""GPUs that take chunks later than those of ranks with the same part, on flows whose times are made up from waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from duckdb import DuckDBPyConnection

from forensics.rules.engine import thresholds
from forensics.rules.reductions.network.gpu_holds import GpuHold, gpu_holds
from forensics.rules.reductions.network.slowness import Slowness
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.slow.rank_awaited import RULE, _single_holds
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


def rings(connection: DuckDBPyConnection, wait: Wait, members: int = 4, kind: str = "all_reduce", back: bool = False) -> None:
    """One ring of so many ranks, 16 operations; with `back` each sends to the rank before it too, as in a tree."""
    rows: list[tuple[object, ...]] = []
    for step, rank in ((step, rank) for step in range(16) for rank in range(members)):
        consume, credit = (each * MS for each in wait(rank, step))
        ways = [(1, True), (-1, False)] + ([(-1, True), (1, False)] if back else [])
        for at, (by, sends) in enumerate(ways):
            own = (MS, credit, MS, None, None) if sends else (None, None, None, MS, consume)
            other = (rank + by) % members
            named = (rank, 10 * step + at, "ring", rank, other, rank, other, members, 0, sends, kind)
            rows.append((*named, step + 1, 16, 1 << 20, step * STEP_NS, step * STEP_NS + 50 * MS, 50 * MS, 8, *own))
    add(connection, rows)


def test_places_of_a_ring_are_compared_with_each_other_where_it_is_the_only_one(connection: DuckDBPyConnection) -> None:
    rings(connection, slow(2, 0, 20.0))
    found = only(gpu_holds(connection))
    assert (found.rank, found.slow, found.peers, found.of_rings) == (2, 16, 3, True)


@pytest.mark.parametrize(
    ("members", "kind", "back", "credit_ms"),
    [(4, "broadcast", False, 0.1), (4, "all_reduce", True, 0.1), (3, "all_reduce", False, 0.1), (4, "all_reduce", False, 25.0)],
    ids=["a root has a part of its own", "a tree", "too few", "its way out is full"],
)
def test_places_that_have_no_equal_accuse_nobody(
    connection: DuckDBPyConnection, members: int, kind: str, back: bool, credit_ms: float
) -> None:
    rings(
        connection, lambda rank, step: (slow(2, 0, 20.0)(rank, step)[0], credit_ms if rank == 2 else 0.1), members, kind, back
    )
    assert gpu_holds(connection) == ()


@pytest.mark.parametrize(
    ("rank", "share", "changes", "named"),
    [
        (2, 0.25, {}, True),
        (2, 0.15, {}, False),
        (2, 0.15, {"had_onset": True}, True),
        (2, 0.05, {"had_onset": True}, False),
        (0, 0.3, {}, False),
        (0, 0.3, {"had_onset": True}, True),
        (2, 0.05, {"of_rings": False}, True),
    ],
    ids=["much", "its place may have work", "it became slow", "little", "the first rank", "it became slow too", "equals"],
)
def test_a_gpu_compared_with_other_places_costs_as_much_as_a_late_rank(
    rank: int, share: float, changes: dict[str, bool], named: bool
) -> None:
    onset, of_rings, members = changes.get("had_onset", False), changes.get("of_rings", True), (0, 1, 2, 3)
    hold = GpuHold(rank, "ring", "all_reduce", members, 16, 16, 3, MS, 20 * MS, 3e8, share, 0, onset, None, "x", of_rings)
    roster = Roster({each: RankFacts(each) for each in members}, 4)
    found, behind = (
        [*_single_holds(Slowness(holds=(hold,)), (), waits, roster, thresholds(RULE, {}))] for waits in ((), {rank})
    )
    assert bool(found) is named
    assert not (of_rings and behind)  # it waits for a late rank elsewhere
