"""Lanes, ends and pauses of slow ways, on flows whose times are made up from waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.network.channel_flows import Lane, lanes
from forensics.rules.reductions.network.proxy_pauses import pauses
from forensics.rules.reductions.network.slow_ends import blamed
from forensics.rules.reductions.network.slowness import Slowness
from tests.unit.rules.made_up_flows import MS, STEP_NS, flows_of, ring


@pytest.fixture
def connection() -> Iterator[DuckDBPyConnection]:
    with flows_of(4) as opened:
        yield opened


def sound(sender: int, receiver: int, step: int) -> tuple[float, float, float, float, float]:
    """A little noise that is no rank's own."""
    noise = (sender * 7 + step * 3) % 5 / 20
    return 10.0, 0.1, 1.0 + noise, 10.0, 0.2


def lane_of(found: tuple[Lane, ...], sender: int) -> Lane:
    (lane,) = [lane for lane in found if lane.sender == sender]
    return lane


def test_lanes_that_are_alike_are_sound(connection: DuckDBPyConnection) -> None:
    ring(connection, 4, 10, sound)
    found = lanes(connection)
    assert len(found) == 4 and all(lane.sound and not lane.recurs for lane in found)


def test_a_lane_that_is_slow_from_a_step_on(connection: DuckDBPyConnection) -> None:
    ring(connection, 4, 20, lambda s, r, step: (10.0, 0.1, 40.0, 50.0, 0.2) if s == 2 and step >= 8 else sound(s, r, step))
    lane = lane_of(lanes(connection), 2)
    assert (lane.recurs, lane.slow, lane.flows, lane.since_ns) == (True, 12, 12, 8 * STEP_NS - 50_100_000)
    assert lane.share == pytest.approx(0.39, abs=0.05)
    assert lane.slowdown >= 4, (
        "at 40 ms of buffers' time the NIC was at work for 40 ms at least, that of the peers for 11 at most"
    )


def test_a_lane_that_is_slow_now_and_then_is_neither_slow_nor_sound(connection: DuckDBPyConnection) -> None:
    ring(connection, 4, 20, lambda s, r, step: (10.0, 0.1, 40.0, 50.0, 0.2) if s == 2 and step % 3 == 0 else sound(s, r, step))
    lane = lane_of(lanes(connection), 2)
    assert not lane.recurs and lane.share < 0.2


def test_victims_of_a_slow_lane_wait_elsewhere(connection: DuckDBPyConnection) -> None:
    """Downstream of it chunks come late, upstream credit does: neither is time at the NIC."""

    def waits(sender: int, receiver: int, step: int) -> tuple[float, float, float, float, float]:
        return (1.0, 0.1, 60.0, 61.0, 0.2) if sender == 1 else (30.0, 30.0, 1.0, 60.0, 0.2)

    ring(connection, 4, 10, waits)
    found = lanes(connection)
    assert [lane.sender for lane in found if lane.recurs] == [1]
    assert sum(lane.sound for lane in found) == 3


def test_two_lanes_do_not_clear_each_other(connection: DuckDBPyConnection) -> None:
    ring(connection, 2, 10, sound)
    assert not any(lane.sound or lane.recurs for lane in lanes(connection))


def test_a_lane_without_peers_is_compared_with_its_own_past(connection: DuckDBPyConnection) -> None:
    ring(connection, 2, 30, lambda s, r, step: (10.0, 0.1, 40.0, 50.0, 0.2) if step >= 15 else sound(s, r, step))
    connection.execute("DELETE FROM ended_flows WHERE sends AND rank = 1")
    (lane,) = lanes(connection)
    assert (lane.peers, lane.recurs, lane.since_ns) == (0, True, 15 * STEP_NS - 50_100_000)


def test_a_rank_is_blamed_only_for_ways_to_several_others() -> None:
    (blame,) = blamed({(0, 1): 0.2, (0, 2): 0.1}, [(0, 1)], [(3, 1), (3, 2)])
    assert (blame.ranks, blame.ways, blame.spared) == ((0,), ((0, 1), (0, 2)), ((3, 1), (3, 2)))
    (blame,) = blamed({(0, 1): 0.2}, [(0, 1)], [(3, 1)])
    assert blame.ranks == (0, 1), "of one way either end may be slow, or what lies between"


def test_a_sound_way_in_the_same_direction_clears_a_rank() -> None:
    (blame,) = blamed({(0, 1): 0.2, (0, 2): 0.1}, [(0, 1)], [(0, 3)])
    assert blame.ranks == (0, 1)
    (blame,) = blamed({(0, 1): 0.2, (0, 2): 0.1}, [(0, 1)], [(3, 0)])
    assert blame.ranks == (0,), "what it receives is another direction"


def test_an_echo_on_the_way_back_does_not_clear_it() -> None:
    (blame,) = blamed({(5, 13): 0.165, (5, 21): 0.022, (21, 5): 0.011}, [(5, 13), (5, 21)], [(13, 5)])
    assert blame.ranks == (5,) and (21, 5) in blame.ways


def test_independent_faults_are_told_apart() -> None:
    found = blamed({(0, 1): 0.2, (0, 2): 0.2, (6, 7): 0.1, (5, 7): 0.1}, [(0, 1), (6, 7)], [])
    assert [blame.ranks for blame in found] == [(0,), (7,)]


def test_nothing_material_blames_nobody() -> None:
    assert blamed({(0, 1): 0.01}, [], []) == ()


def test_a_pause_needs_both_ends(connection: DuckDBPyConnection) -> None:
    """Ready and offered at once; what either GPU took is none of it."""
    cases = {0: (1.0, 50.0, 1.0, 51.0, 0.2), 1: (1.0, 50.0, 1.0, 2.0, 50.0), 2: (50.0, 0.1, 1.0, 51.0, 0.2)}
    ring(connection, 4, 3, lambda s, r, step: cases.get(s, (1.0, 0.1, 1.0, 2.0, 0.2)))
    found = {way: each for way, each in pauses(connection, 5 * MS).items() if each.paused}
    assert list(found) == [(0, 1)]
    assert found[0, 1].paused == 3
    assert found[0, 1].lost_ns == pytest.approx(3 * 49.8 * MS)


def test_a_way_whose_chunks_wait_to_be_handed_over_is_no_fault_of_the_network(connection: DuckDBPyConnection) -> None:
    ring(connection, 4, 10, lambda s, r, step: (1.0, 90.0, 20.0, 91.0, 0.2) if s == 0 else sound(s, r, step))
    by_way = {(lane.sender, lane.receiver): (lane,) for lane in lanes(connection)}
    assert (0, 1) in Slowness(lanes=by_way).slow_ways()
    assert (0, 1) not in Slowness(lanes=by_way, pauses=pauses(connection, 5 * MS)).slow_ways()
