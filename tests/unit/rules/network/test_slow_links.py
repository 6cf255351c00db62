"""Channels, ends and pauses of slow links, on flows whose times are made up from waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.network.channel_flows import ChannelFlows, channel_flows
from forensics.rules.reductions.network.gpu_holds import GpuHold
from forensics.rules.reductions.network.pair_rates import PairRate
from forensics.rules.reductions.network.poll_gaps import poll_gaps
from forensics.rules.reductions.network.proxy_pauses import pauses
from forensics.rules.reductions.network.slow_ends import blamed
from forensics.rules.reductions.network.slowness import Slowness
from forensics.rules.reductions.ranks.nic_users import NicUsers
from tests.unit.rules.network.made_up_flows import MS, STEP_NS, flows_of, ring


@pytest.fixture
def connection() -> Iterator[DuckDBPyConnection]:
    with flows_of(4) as opened:
        yield opened


def sound(sender: int, receiver: int, step: int) -> tuple[float, float, float, float, float]:
    """A little noise that is no rank's own."""
    noise = (sender * 7 + step * 3) % 5 / 20
    return 10.0, 0.1, 1.0 + noise, 10.0, 0.2


def channel_of(found: tuple[ChannelFlows, ...], sender: int) -> ChannelFlows:
    (channel,) = [channel for channel in found if channel.sender == sender]
    return channel


def test_channels_that_are_alike_are_sound(connection: DuckDBPyConnection) -> None:
    ring(connection, 4, 10, sound)
    found = channel_flows(connection)
    assert len(found) == 4 and all(channel.sound and not channel.recurs for channel in found)


def test_a_channel_that_is_slow_from_a_step_on(connection: DuckDBPyConnection) -> None:
    ring(connection, 4, 20, lambda s, r, step: (10.0, 0.1, 40.0, 50.0, 0.2) if s == 2 and step >= 8 else sound(s, r, step))
    channel = channel_of(channel_flows(connection), 2)
    assert (channel.recurs, channel.slow, channel.flows, channel.since_ns) == (True, 12, 12, 8 * STEP_NS - 50_100_000)
    assert channel.share == pytest.approx(0.39, abs=0.05)
    assert channel.slowdown >= 4, (
        "at 40 ms of buffers' time the NIC was at work for 40 ms at least, that of the peers for 11 at most"
    )


def test_a_channel_that_is_slow_now_and_then_is_neither_slow_nor_sound(connection: DuckDBPyConnection) -> None:
    ring(connection, 4, 20, lambda s, r, step: (10.0, 0.1, 40.0, 50.0, 0.2) if s == 2 and step % 3 == 0 else sound(s, r, step))
    channel = channel_of(channel_flows(connection), 2)
    assert not channel.recurs and channel.share < 0.2


@pytest.mark.parametrize(("slow_from", "is_sound"), [(8, False), (9, True)], ids=["two in a row", "one is an accident"])
def test_a_channel_whose_newest_flows_are_slow_clears_nobody(
    connection: DuckDBPyConnection, slow_from: int, is_sound: bool
) -> None:
    """It became slow two steps before the logs end: most of its flows are as fast as those of others."""
    ring(connection, 4, 10, lambda s, r, t: (10.0, 0.1, 40.0, 50.0, 0.2) if s == 2 and t >= slow_from else sound(s, r, t))
    channel = channel_of(channel_flows(connection), 2)
    assert (channel.sound, channel.recurs) == (is_sound, False)


def test_victims_of_a_slow_lane_wait_elsewhere(connection: DuckDBPyConnection) -> None:
    """Downstream of it chunks come late, upstream credit does: neither is time at the NIC."""

    def waits(sender: int, receiver: int, step: int) -> tuple[float, float, float, float, float]:
        return (1.0, 0.1, 60.0, 61.0, 0.2) if sender == 1 else (30.0, 30.0, 1.0, 60.0, 0.2)

    ring(connection, 4, 10, waits)
    found = channel_flows(connection)
    assert [channel.sender for channel in found if channel.recurs] == [1]
    assert sum(channel.sound for channel in found) == 3


def test_two_channels_do_not_clear_each_other(connection: DuckDBPyConnection) -> None:
    ring(connection, 2, 10, sound)
    assert not any(channel.sound or channel.recurs for channel in channel_flows(connection))


def test_a_channel_without_peers_is_compared_with_its_own_past(connection: DuckDBPyConnection) -> None:
    ring(connection, 2, 30, lambda s, r, step: (10.0, 0.1, 40.0, 50.0, 0.2) if step >= 15 else sound(s, r, step))
    connection.execute("DELETE FROM ended_flows WHERE sends AND rank = 1")
    (channel,) = channel_flows(connection)
    assert (channel.peers, channel.recurs, channel.since_ns) == (0, True, 15 * STEP_NS - 50_100_000)


@pytest.mark.parametrize(
    ("credit_ms", "nic_ms", "kind", "is_slow"),
    [(5.0, 7.0, "p2p", False), (5.0, 14.0, "p2p", True), (0.1, 7.0, "p2p", True), (60.0, 7.0, "p2p", True),
     (5.0, 7.0, "all_reduce", True)],
    ids=["as fast as others", "slower", "others do not wait", "receivers of others come late", "a ring has one pace"],
)  # fmt: skip
def test_messages_that_wait_for_the_nic_where_others_want_credit_are_no_slower(
    credit_ms: float, nic_ms: float, kind: str, is_slow: bool
) -> None:
    """A buffer of the peers stays 2 ms at the NIC, and for so long in want of credit before."""
    with flows_of(8) as connection:
        ring(connection, 8, 8, lambda s, r, t: (9.0, 0.02, nic_ms, 9.0, 0.2) if s == 2 else (9.0, credit_ms, 2.0, 9.0, 0.2))
        connection.execute("UPDATE ended_flows SET kind = ?", [kind])
        channels = {(each.sender, each.receiver): (each,) for each in channel_flows(connection)}
    assert (set(Slowness(channels=channels).slow_links()) == {(2, 3)}) is is_slow


def test_a_rank_is_blamed_only_for_ways_to_several_others() -> None:
    (blame,) = blamed({(0, 1): 0.2, (0, 2): 0.1}, [(0, 1)], [(3, 1), (3, 2)], NicUsers())
    assert (blame.ranks, blame.links, blame.spared) == ((0,), ((0, 1), (0, 2)), ((3, 1), (3, 2)))
    (blame,) = blamed({(0, 1): 0.2}, [(0, 1)], [(3, 1)], NicUsers())
    assert blame.ranks == (0, 1), "of one link either end may be slow, or what lies between"


def test_a_sound_way_in_the_same_direction_clears_a_rank() -> None:
    (blame,) = blamed({(0, 1): 0.2, (0, 2): 0.1}, [(0, 1)], [(0, 3)], NicUsers())
    assert blame.ranks == (0, 1)
    (blame,) = blamed({(0, 1): 0.2, (0, 2): 0.1}, [(0, 1)], [(3, 0)], NicUsers())
    assert blame.ranks == (0,), "what it receives is another direction"


def test_an_echo_on_the_way_back_does_not_clear_it() -> None:
    (blame,) = blamed({(5, 13): 0.165, (5, 21): 0.022, (21, 5): 0.011}, [(5, 13), (5, 21)], [(13, 5)], NicUsers())
    assert blame.ranks == (5,) and (21, 5) in blame.links


def test_independent_faults_are_distinguished() -> None:
    found = blamed({(0, 1): 0.2, (0, 2): 0.2, (6, 7): 0.1, (5, 7): 0.1}, [(0, 1), (6, 7)], [], NicUsers())
    assert [blame.ranks for blame in found] == [(0,), (7,)]


def on_one_nic(*groups: tuple[int, ...]) -> NicUsers:
    shared = {rank: ranks for ranks in groups for rank in ranks}
    alone = {("host", f"mlx5_{rank}"): (rank,) for rank in range(32) if rank not in shared}
    return NicUsers({**alone, **{("host", f"mlx5_{ranks[0]}"): ranks for ranks in groups}}, shared)


def test_ranks_that_have_a_slow_nic_together_are_one_end() -> None:
    """What ranks 4 and 5 send to other hosts is slow; the NIC of ranks 12 and 13 sends to others as ever."""
    slow = {(4, 12): 0.05, (5, 13): 0.05, (12, 4): 0.07, (13, 5): 0.06, (20, 4): 0.02, (21, 5): 0.02}
    sound, users = [(12, 28), (13, 29), (20, 28), (21, 29)], on_one_nic((4, 5), (12, 13), (20, 21))
    (blame,) = blamed(slow, list(slow), sound, users)
    assert (blame.ranks, blame.single, set(blame.links)) == ((4, 5), True, set(slow))


def test_a_sound_link_of_one_of_them_says_that_it_is_not_their_nic() -> None:
    slow, users = {(4, 12): 0.05, (4, 20): 0.05, (5, 13): 0.05}, on_one_nic((4, 5))
    assert {blame.ranks for blame in blamed(slow, list(slow), [(5, 21)], users)} == {(4,), (5, 13)}


def test_two_links_to_a_nic_of_which_one_rank_left_no_log_do_not_name_the_other_end() -> None:
    """Rank 13 is known to be on the NIC of rank 12 by the queue pairs of rank 5, or nothing is known of it."""
    slow = {(4, 12): 0.4, (5, 13): 0.4, (12, 20): 0.1}
    assert [each.ranks for each in blamed(slow, list(slow), [], on_one_nic((4, 5), (12, 13)))] == [(12, 13)]
    open_ = NicUsers(
        {key: ranks for key, ranks in on_one_nic((4, 5)).by_nic.items() if 13 not in ranks}, {4: (4, 5), 5: (4, 5)}
    )
    assert (4, 5) not in [each.ranks for each in blamed(slow, list(slow), [], open_)]


def test_links_to_ranks_on_one_nic_tell_its_ends_no_better_than_one_link() -> None:
    slow, users = {(4, 12): 0.05, (5, 13): 0.04}, on_one_nic((4, 5), (12, 13))
    (blame,) = blamed(slow, list(slow), [], users)
    assert (blame.ranks, blame.single, blame.links) == ((4, 5, 12, 13), False, ((4, 12), (5, 13)))


def test_a_link_is_compared_with_those_that_have_the_same_part() -> None:
    """What goes back along a pipeline is slower on all of them: one that sends on as slowly as that is slow."""
    with flows_of(14) as connection:
        ring(connection, 14, 10, sound)
        connection.execute("UPDATE ended_flows SET position = rank % 2, peer = other % 2")
        connection.execute("UPDATE ended_flows SET nic_ns = 2.6 * nic_ns WHERE position = 1 OR rank = 4")
        assert {channel.sender for channel in channel_flows(connection) if channel.recurs} == {4}


def test_nothing_material_blames_nobody() -> None:
    assert blamed({(0, 1): 0.01}, [], [], NicUsers()) == ()


def test_a_pause_needs_both_ends(connection: DuckDBPyConnection) -> None:
    """Ready and offered at once; what either GPU or the NIC took is none of it.

    Rank 3 waited for buffers, and then its receiver for what was on its way.
    """
    cases = {
        0: (1.0, 50.0, 1.0, 51.0, 0.2),
        1: (1.0, 50.0, 1.0, 2.0, 50.0),
        2: (50.0, 0.1, 1.0, 51.0, 0.2),
        3: (1.0, 50.0, 40.0, 41.0, 0.2),
    }
    ring(connection, 4, 3, lambda s, r, step: cases.get(s, (1.0, 0.1, 1.0, 2.0, 0.2)))
    found = {link: each for link, each in pauses(connection, 5 * MS).items() if each.paused}
    assert list(found) == [(0, 1)]
    assert found[0, 1].paused == 3
    assert found[0, 1].lost_ns == pytest.approx(3 * 43 * MS), (
        "of 51 ms without the GPU each of 8 chunks was at the NIC for 1 ms"
    )


def test_a_nic_that_is_given_a_few_chunks_at_a_time_is_no_proxy_that_pauses(connection: DuckDBPyConnection) -> None:
    """Two of eight buffers are at the NIC at any time, the others wait: it is at work all along."""
    ring(connection, 4, 10, lambda s, r, step: (4.0, 30.0, 12.0, 42.0, 0.2) if s == 0 else (4.0, 1.0, 41.0, 42.0, 0.2))
    assert not any(each.paused for each in pauses(connection, 5 * MS).values())


def test_a_nic_that_had_nothing_while_its_flow_waited_for_the_gpu_is_no_proxy_that_pauses(
    connection: DuckDBPyConnection,
) -> None:
    """The slowest link of a sound ring: flows are there long before gradients, then two chunks at a time are at the NIC."""
    waits = lambda s, r, step: (700.0, 24.0, 10.0, 730.0, 0.2) if s == 0 else (724.0, 0.1, 10.0, 730.0, 0.2)  # noqa: E731
    ring(connection, 4, 10, waits)
    assert not any(each.paused for each in pauses(connection, 5 * MS).values())


def test_a_link_whose_chunks_wait_to_be_handed_over_is_no_fault_of_the_network(connection: DuckDBPyConnection) -> None:
    ring(connection, 4, 10, lambda s, r, step: (1.0, 90.0, 20.0, 91.0, 0.2) if s == 0 else sound(s, r, step))
    by_link = {(channel.sender, channel.receiver): (channel,) for channel in channel_flows(connection)}
    assert (0, 1) in Slowness(channels=by_link).slow_links()
    assert (0, 1) not in Slowness(channels=by_link, pauses=pauses(connection, 5 * MS)).slow_links()


@pytest.mark.parametrize(
    ("slowdown", "peers", "paused", "is_slow"),
    [(4.0, 42, 0, True), (4.0, 42, 3, False), (1.5, 42, 0, False), (4.0, 3, 0, False)],
    ids=["at a quarter of the rate", "and its proxy surely paused", "nearly as fast", "few to compare"],
)
def test_work_requests_show_a_nic_slow_whose_chunks_wait_to_be_handed_over(
    slowdown: float, peers: int, paused: int, is_slow: bool, connection: DuckDBPyConnection
) -> None:
    """The NIC is at work with what others send meanwhile, or with the few chunks that it takes at a time."""
    ring(connection, 4, 10, lambda s, r, step: (1.0, 90.0, 20.0, 91.0, 0.2) if s == 0 else sound(s, r, step))
    channels = {(channel.sender, channel.receiver): (channel,) for channel in channel_flows(connection)}
    stated = {link: replace(each, paused=paused) for link, each in pauses(connection, 5 * MS).items()}
    pair = PairRate(0, 1, "#1", None, 1, 100, 1e9, slowdown * 1e9, peers, 0.0, 0.0, "0.frx")
    assert ((0, 1) in Slowness(channels=channels, pauses=stated, pairs=(pair,)).slow_links()) is is_slow


def test_a_sender_that_seldom_looks_sees_completions_late(connection: DuckDBPyConnection) -> None:
    ring(connection, 4, 10, lambda s, r, step: (1.0, 0.2, 20.0, 91.0, 0.2) if s == 0 else sound(s, r, step))
    channels = {(channel.sender, channel.receiver): (channel,) for channel in channel_flows(connection)}
    blind = Slowness(channels=channels, unpolled={0: 30.0 * MS})
    assert (0, 1) not in blind.slow_links() and set(blind.seen_late()) == {0}
    assert (0, 1) in Slowness(channels=channels, unpolled={0: 2.0 * MS, 1: 30.0 * MS}).slow_links()


@pytest.mark.parametrize(("slowdown", "is_slow"), [(1.5, True), (1.2, False), (None, False)])
def test_where_work_requests_say_the_same_less_than_half_of_the_rate_counts(
    slowdown: float | None, is_slow: bool, connection: DuckDBPyConnection
) -> None:
    ring(connection, 4, 10, lambda s, r, step: (10.0, 0.1, 1.6, 50.0, 0.2) if s == 2 else (10.0, 0.1, 1.0, 50.0, 0.2))
    channels = {(channel.sender, channel.receiver): (channel,) for channel in channel_flows(connection)}
    stated = () if slowdown is None else (PairRate(2, 3, "n/1", "n", 1, 99, 1e9, slowdown * 1e9, 3, 0.0, 0.0, "2.frx"),)
    assert ((2, 3) in Slowness(channels=channels, pairs=stated).slow_links(least_share=0.0)) is is_slow


@pytest.mark.parametrize(
    ("slowdown", "peers", "fast", "is_slow"),
    [(3.0, 4, None, True), (1.5, 4, None, False), (None, 4, None, False), (3.0, 3, None, False), (3.0, 4, 1, False)],
    ids=["halved", "a third", "no work requests", "few queue pairs", "one was fast"],
)
def test_a_short_record_shows_a_slow_link_where_no_flow_was_fast_and_work_requests_say_the_same(
    slowdown: float | None, peers: int, fast: int | None, is_slow: bool
) -> None:
    with flows_of(6) as connection:
        slow = (10.0, 0.1, 3.0, 50.0, 0.2)
        ring(connection, 6, 3, lambda s, r, step: slow if s == 2 and step != fast else (10.0, 0.1, 1.0, 50.0, 0.2))
        channels = {(channel.sender, channel.receiver): (channel,) for channel in channel_flows(connection)}
    stated = () if slowdown is None else (PairRate(2, 3, "n/1", "n", 1, 99, 1e9, slowdown * 1e9, peers, 0.0, 0.0, "2.frx"),)
    assert ((2, 3) in Slowness(channels=channels, pairs=stated).slow_links()) is is_slow


def test_gaps_between_polls_are_those_of_few_ranks(connection: DuckDBPyConnection) -> None:
    connection.execute("CREATE TABLE wr_samples (source_id BIGINT, locator BIGINT, rank INTEGER, poll_gap_ns BIGINT)")
    connection.execute(
        "INSERT INTO wr_samples SELECT r, n, r, CASE r WHEN 2 THEN 4000000 ELSE 30000 END FROM range(4) a(r), range(5) b(n)"
    )
    assert poll_gaps(connection, range(4)) == {2: 4 * MS}
    connection.execute("DELETE FROM wr_samples WHERE rank = 2 AND locator > 1")
    assert poll_gaps(connection, range(4)) == {}, "two bad moments"
    connection.execute("UPDATE wr_samples SET poll_gap_ns = 4000000")
    assert poll_gaps(connection, range(4)) == {}, "hosts are busy everywhere"


@pytest.mark.parametrize(
    ("ranks", "by_ms", "flows", "recurs"), [(8, 40.0, 3, True), (8, 2.5, 3, False), (4, 40.0, 3, False), (8, 40.0, 2, False)]
)
def test_a_short_record_needs_an_extreme_and_many_peers(ranks: int, by_ms: float, flows: int, recurs: bool) -> None:
    with flows_of(ranks) as connection:
        ring(connection, ranks, flows, lambda s, r, step: (10.0, 0.1, by_ms, 50.0, 0.2) if s == 2 else sound(s, r, step))
        assert channel_of(channel_flows(connection), 2).recurs is recurs


@pytest.mark.parametrize(("chunks", "gap_ms", "is_late"), [(48, 3.5, True), (8, 3.5, False), (48, 0.7, False)])
def test_a_proxy_sees_every_chunk_of_a_flow_late(chunks: int, gap_ms: float, is_late: bool) -> None:
    """A flow of 48 chunks goes six times through its buffers: 12 ms of waits of a buffer are 2 ms of each chunk."""
    flows = ChannelFlows("ring", "all_reduce", 0, 1, 0, 1 << 25, 20, 20, 0.4e6, 12e6, 23.2e7, 0.5, 1e9, 9e9, None, 7, "0.frx")
    seen = Slowness(channels={(0, 1): (replace(flows, rounds=chunks / 8),)}, unpolled={0: gap_ms * MS})
    assert (0 in seen.seen_late()) is is_late
    assert ((0, 1) in seen.slow_links()) is not is_late


def test_how_often_a_flow_goes_through_its_buffers(connection: DuckDBPyConnection) -> None:
    ring(connection, 4, 8, lambda sender, receiver, step: (1.0, 1.0, 1.0, 1.0, 1.0))
    assert {each.rounds for each in channel_flows(connection)} == {2.0}


@pytest.mark.parametrize(
    ("typical_ms", "held", "counted", "is_slow"),
    [(5, 1, False, False), (5, None, False, True), (5, 1, True, True), (40, 1, False, True), (5, 3, False, True)],
    ids=["around a late GPU", "none is late", "work requests say so", "longer than a queue", "the GPU of another rank"],
)
def test_buffers_queue_around_a_gpu_that_is_late(typical_ms: float, held: int | None, counted: bool, is_slow: bool) -> None:
    """All that waited for it is handed to the NIC at once."""
    took = typical_ms * MS
    flows = ChannelFlows(
        "ring", "all_reduce", 0, 1, 0, 1 << 24, 20, 20, 1.0 * MS, took, 20 * took, 0.5, 1e9, 4e9, None, 7, "0.frx"
    )
    hold = GpuHold(held or 0, "ring", "all_reduce", (0, 1, 2, 3), 20, 20, 3, 1e5, 4e6, 8e7, 0.2, 0, True, None, "1.frx")
    pairs = (PairRate(0, 1, "#1", None, 1, 100, 1e9, 2e9, 8, 0.0, 0.0, "0.frx"),) if counted else ()
    known = Slowness(channels={(0, 1): (flows,)}, pairs=pairs, holds=(hold,) if held is not None else ())
    assert ((0, 1) in known.slow_links()) is is_slow
