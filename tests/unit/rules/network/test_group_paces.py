"""Rings that are as fast as others although buffers queue before one of their links, and rings that are slower."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pytest
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.hardware.cores import BusyHosts
from forensics.rules.reductions.network.channel_flows import ChannelFlows, channel_flows
from forensics.rules.reductions.network.group_paces import GroupPaces, group_paces
from forensics.rules.reductions.network.long_calls import LongCalls
from forensics.rules.reductions.network.other_traffic import SharedNics
from forensics.rules.reductions.network.pair_rates import PairRate
from forensics.rules.reductions.network.proxy_pauses import Pauses
from forensics.rules.reductions.network.slowness import Slowness
from forensics.rules.reductions.network.starved_hosts import StarvedHosts
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.slow.proxy_paused import RULE
from tests.unit.rules.network.made_up_flows import MS, STEP_NS, add, flows_of

GROUPS, MEMBERS, STEPS = 4, 4, 8
Slow = Mapping[int, tuple[int, float]]
"""Of a group: the place of the sender before whose link buffers queue, and how long (ms) an operation of it takes."""


@pytest.fixture
def connection() -> Iterator[DuckDBPyConnection]:
    with flows_of(GROUPS * MEMBERS) as opened:
        yield opened


def rings(connection: DuckDBPyConnection, slow: Slow, late_ms: float = 0.0) -> None:
    """One ring a group of ranks group, group + 4, ...; rank 0 comes late to each operation of its group."""
    rows: list[tuple[object, ...]] = []
    for group in range(GROUPS):
        queued, took = slow.get(group, (-1, 20.0))
        for step, place in ((step, place) for step in range(STEPS) for place in range(MEMBERS)):
            sender, receiver = (group + GROUPS * (each % MEMBERS) for each in (place, place + 1))
            nic = (8.0 if place == queued else 1.0) * MS
            end = step * STEP_NS
            began = end - int(took * MS) - (0 if sender == 0 else int(late_ms * MS))
            for rank, other, sends in ((sender, receiver, True), (receiver, sender, False)):
                own = (0.0, 0.0, nic, None, None) if sends else (None, None, None, nic, 0.0)
                where = (rank, step + 1000 * sends, f"ring {group}", rank, other, place, 0, MEMBERS, 0, sends, "all_reduce")
                rows.append((*where, step + 1, 16, 1 << 20, began, end, end - began, 8, *own))
    add(connection, rows)


def slow_links(
    connection: DuckDBPyConnection, hosts: Mapping[int, str] | None = None, slower: Iterable[Iterable[int]] = ()
) -> set[tuple[int, int]]:
    channels = channel_flows(connection)
    named = hosts or {rank: f"n{rank // GROUPS}" for rank in range(GROUPS * MEMBERS)}
    by_link = {(each.sender, each.receiver): (each,) for each in channels}
    return set(Slowness(channels=by_link, paces=group_paces(connection, channels, named, slower)).slow_links())


def test_a_ring_that_takes_longer_has_a_slow_link(connection: DuckDBPyConnection) -> None:
    rings(connection, {0: (1, 60.0)})
    assert slow_links(connection) == {(4, 8)}


def test_buffers_that_queue_in_a_ring_as_fast_as_others_are_no_slow_link(connection: DuckDBPyConnection) -> None:
    rings(connection, {0: (1, 20.0)})
    assert slow_links(connection) == set()


def test_lateness_of_a_member_is_no_pace(connection: DuckDBPyConnection) -> None:
    """Its peers wait for rank 0 in each operation of the ring; from when it came on the ring is as fast as others."""
    rings(connection, {0: (1, 20.0)}, late_ms=50.0)
    assert slow_links(connection) == set()


def test_a_host_that_is_slow_for_every_ring_is_slow(connection: DuckDBPyConnection) -> None:
    """All rings are equally slow, each of them slowest where it leaves the same host."""
    rings(connection, dict.fromkeys(range(3), (1, 60.0)))
    assert slow_links(connection) == {(4, 8), (5, 9), (6, 10)}


def test_rings_of_one_pace_that_queue_at_one_host_have_a_slow_host(connection: DuckDBPyConnection) -> None:
    rings(connection, dict.fromkeys(range(4), (1, 60.0)))
    assert slow_links(connection) == {(4, 8), (5, 9), (6, 10), (7, 11)}


def test_rings_of_one_pace_that_queue_at_several_hosts_have_none(connection: DuckDBPyConnection) -> None:
    """Two and two have a host together, and no host is that of all."""
    rings(connection, {0: (0, 60.0), 1: (1, 60.0), 2: (2, 60.0), 3: (1, 60.0)})
    assert slow_links(connection) == set()


def test_a_ring_whose_calls_are_slow_on_the_device_has_a_slow_link(connection: DuckDBPyConnection) -> None:
    """Its operations last no longer by the log, into which they are written long before the device comes to them."""
    rings(connection, {0: (1, 20.0), 1: (1, 20.0)})
    assert slow_links(connection, slower=[(0, 4, 8, 12)]) == {(4, 8)}


@pytest.mark.parametrize(("begins_ms", "slowdown", "named"), [(120, 3.0, {(4, 8)}), (120, 1.2, set()), (20, 3.0, set())])
def test_from_end_to_end_rings_that_wait_for_each_other_are_alike(
    connection: DuckDBPyConnection, begins_ms: int, slowdown: float, named: set[tuple[int, int]]
) -> None:
    """Hosts hand operations over before the last one has ended: then work requests at half of the rate tell a slow link."""
    rings(connection, {0: (1, 20.0)})
    connection.execute(f"UPDATE ended_flows SET start_ns = end_ns - {begins_ms * MS}")
    channels = channel_flows(connection)
    paces = group_paces(connection, channels, {rank: f"n{rank // GROUPS}" for rank in range(GROUPS * MEMBERS)})
    pair = PairRate(4, 8, "", None, None, 100, 1e9, slowdown * 1e9, 8, 0, 0, "", spread=0.1)
    by_link = {(each.sender, each.receiver): (each,) for each in channels}
    assert set(Slowness(channels=by_link, pairs=(pair,), paces=paces).slow_links()) == named


@pytest.mark.parametrize(("full", "since_ns", "is_named"), [(True, None, False), (True, 7, True), (False, None, True)])
def test_ranks_that_share_a_full_line_have_no_slow_link(full: bool, since_ns: int | None, is_named: bool) -> None:
    """They meet in all that they send, so that each gets half; before the link became slow, its line may have been full."""
    queued = ChannelFlows("ring 0", "all_reduce", 4, 8, 0, 1 << 20, 8, 8, 1e6, 8e6, 5e7, 0.1, 1e9, 4e9, since_ns, 7, "")
    took: dict[tuple[str, int | None, int], dict[str, float]] = {
        ("all_reduce", 4, 20): {f"ring {group}": 20.0 for group in range(GROUPS)}
    }
    paces = GroupPaces(
        took, {}, {rank: f"n{rank // GROUPS}" for rank in range(16)}, ahead=frozenset({("ring 0", "all_reduce", 20)})
    )
    pair = PairRate(4, 8, "", None, None, 100, 1e9, 2.2e9, 8, 0, 0, "", spread=0.1)
    known = Slowness({(4, 8): (queued,)}, (pair,), paces=paces, full=frozenset({(4, 8)} if full else set()))
    assert bool(known.slow_links()) is is_named


def test_one_other_ring_says_nothing(connection: DuckDBPyConnection) -> None:
    rings(connection, {0: (1, 20.0)})
    connection.execute("DELETE FROM ended_flows WHERE communicator IN ('ring 2', 'ring 3')")
    assert slow_links(connection) == {(4, 8)}


@pytest.mark.parametrize(("slowdown", "is_sound"), [(2.4, False), (1.1, True)])
def test_a_link_whose_work_requests_are_slow_clears_nobody(slowdown: float, is_sound: bool) -> None:
    """Two ranks that send in turn over one slow NIC are as fast as two that send together over a sound one."""
    channel = ChannelFlows("pipe", "p2p", 4, 36, 0, 1 << 24, 16, 0, 2e6, 2e6, 0.0, 0.0, 8e9, 1e9, None, 63, "4.frx")
    pair = PairRate(4, 36, "#1", None, 1, 100, 1e9, slowdown * 1e9, 63, 0.0, 0.0, "4.frx")
    assert (Slowness(channels={(4, 36): (channel,)}, pairs=(pair,)).sound_links(()) == ((4, 36),)) is is_sound


@pytest.mark.parametrize(("slow", "is_sound"), [(2, False), (1, True)])
def test_a_link_on_which_all_of_a_kind_is_slow_clears_nobody(slow: int, is_sound: bool) -> None:
    messages = ChannelFlows("pipe", "p2p", 4, 36, 0, 1 << 24, 16, 0, 2e6, 2e6, 0.0, 0.0, 8e9, 1e9, None, 63, "4.frx")
    sums = ChannelFlows("tied", "all_reduce", 4, 36, 0, 1 << 26, 2, slow, 3e6, 8e6, 9e6, 0.0, 8e9, 2e9, None, 63, "4.frx")
    assert (Slowness(channels={(4, 36): (messages, sums)}).sound_links(()) == ((4, 36),)) is is_sound


@pytest.mark.parametrize(("rate", "is_sound"), [(1e5, False), (4e8, True)], ids=["a few bytes", "messages of some size"])
def test_a_link_that_moved_a_few_bytes_clears_nobody(rate: float, is_sound: bool) -> None:
    """A sum of one number is at the NIC for latency, and would be as long on a NIC of a fifth of the rate."""
    sums = ChannelFlows("all", "all_reduce", 4, 36, 0, 2, 16, 0, 1e4, 1e4, 0.0, 0.0, rate, rate, None, 63, "4.frx")
    messages = ChannelFlows("pipe", "p2p", 5, 37, 0, 1 << 24, 16, 0, 2e6, 2e6, 0.0, 0.0, 8e9, 1e9, None, 63, "5.frx")
    found = Slowness(channels={(4, 36): (sums,), (5, 37): (messages,)}).sound_links(())
    assert found == (((4, 36),) * is_sound + ((5, 37),))


@pytest.mark.parametrize(
    ("communicator", "share", "is_named"),
    [("all", 0.7, False), ("all", 0.1, True), ("other", 0.7, True)],
    ids=["beside a slow link", "beside one that loses less", "in other operations"],
)
def test_a_pause_beside_a_slow_link_of_the_same_operations_is_its_echo(communicator: str, share: float, is_named: bool) -> None:
    """Rank 0 exchanges with 1 and with 2, whose NIC is slow: what it offers 1 late it offers late for that."""
    channel = ChannelFlows(communicator, "p2p", 0, 2, 0, 1 << 24, 18, 18, 1e6, 4e6, 1e9, share, 1e9, 4e9, None, 7, "0.frx")
    pause = Pauses(1, 0, "all", "p2p", 18, 18, 25e6, 4e8, 0.15, 5e8, "1.frx")
    slowness = Slowness(channels={(0, 2): (channel,)}, pauses={(1, 0): pause})
    thresholds = {threshold.name: threshold.default for threshold in RULE.thresholds}
    found = RULE.evaluate(slowness, BusyHosts({}), Roster({}, None), SharedNics(()), LongCalls(), StarvedHosts(()), thresholds)
    assert [each.ranks for each in found] == [(0, 1)] * is_named
