"""A host whose proxies do not run: all that pauses or is slow ends there, and nothing that is sent to it is slow."""

from __future__ import annotations

import pytest

from forensics.rules.reductions.network.channel_flows import ChannelFlows
from forensics.rules.reductions.network.proxy_pauses import Pauses
from forensics.rules.reductions.network.slow_ends import Link
from forensics.rules.reductions.network.slowness import Slowness
from forensics.rules.reductions.network.starved_hosts import starved_hosts
from forensics.rules.reductions.ranks.roster import RankFacts, Roster

HOSTS = 4
"""Of two ranks each."""


def channel(link: Link, typical_ns: float, expected_ns: float = 100.0, flows: int = 40) -> ChannelFlows:
    slow = flows if typical_ns >= 2 * expected_ns else 0
    return ChannelFlows(
        f"rail {link[0] % 2}", "all_reduce", *link, 0, 1 << 20, flows, slow, expected_ns, typical_ns, 0, 0.1, 1e9, 1e9, None, 7,
        "x",
    )  # fmt: skip


def named(slow: set[Link], paused: set[Link]) -> list[tuple[int, ...]]:
    links = [(rank, (rank + 2) % (2 * HOSTS)) for rank in range(2 * HOSTS)]
    channels = {link: (channel(link, 900.0 if link in slow else 100.0),) for link in links}
    pauses = {link: Pauses(*link, "rail", "all_reduce", 40, 40, 4e6, 16e7, 0.1, 16e7, "x") for link in paused}
    roster = Roster({rank: RankFacts(rank, host=f"host-{rank // 2}") for rank in range(2 * HOSTS)}, 2 * HOSTS)
    return [each.ranks for each in starved_hosts(Slowness(channels=channels, pauses=pauses), roster)]


def test_what_comes_pauses_and_what_leaves_is_seen_late() -> None:
    assert named({(2, 4), (3, 5)}, {(0, 2), (1, 3)}) == [(2, 3)]
    assert named({(3, 5)}, {(0, 2)}) == [(2, 3)]


@pytest.mark.parametrize(
    ("slow", "paused"),
    [
        ({(2, 4), (3, 5), (0, 2)}, {(1, 3)}),
        ({(2, 4), (3, 5)}, set[Link]()),
        ({(2, 4), (3, 5)}, {(4, 6)}),
        ({(2, 4)}, {(0, 2)}),
        ({(2, 4), (5, 7)}, {(0, 2), (1, 3)}),
        (set[Link](), {(0, 2), (1, 3)}),
    ],
    ids=[
        "a NIC that takes slowly as well", "its NICs send slowly", "a pause elsewhere", "one rank", "a slow link elsewhere",
        "links between two hosts",
    ],
)  # fmt: skip
def test_what_something_else_accounts_for_is_no_starved_host(slow: set[Link], paused: set[Link]) -> None:
    assert named(slow, paused) == []


def test_only_what_stays_longer_than_all_that_can_queue_proves_a_slowdown() -> None:
    assert channel((0, 2), 1500.0).slowdown == 1.0, "sixteen buffers of one line may stand before it"
    assert channel((0, 2), 4800.0).slowdown == 3.0
    assert channel((0, 2), 4800.0, flows=2).slowdown == 1.0, "and that again and again"
