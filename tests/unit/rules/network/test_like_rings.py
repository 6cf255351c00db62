"""Rings of like links: the slowest link of each is no fault, what several of them have at one host may be one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forensics.rules.reductions.network.channel_flows import ChannelFlows
from forensics.rules.reductions.network.like_rings import slow_both_ways, standing_out
from forensics.rules.reductions.network.pair_rates import PairRate
from forensics.rules.reductions.network.slow_ends import Blame, Link
from forensics.rules.reductions.network.slow_paths import on_one_path
from forensics.rules.reductions.network.slowness import Slowness
from forensics.rules.reductions.network.stragglers import Straggler

HOSTS = 4
USUAL = 1e10


def host_of(rank: int) -> str:
    """Four hosts of two ranks."""
    return f"host-{rank // 2}"


def channel(link: Link, typical_ns: float) -> ChannelFlows:
    slow = 40 if typical_ns >= 200 else 0
    return ChannelFlows(
        f"rail {link[0] % 2}", "all_reduce", *link, 0, 1 << 20, 40, slow, 100, typical_ns, 0, 0.1, 1e9, 1e10, None, 7, "x"
    )  # fmt: skip


def rings(slow: dict[Link, float], slowdown: float) -> tuple[Slowness, dict[Link, ChannelFlows]]:
    """A ring of each rail over all hosts; buffers stay so long (ns) on slow links, whose work requests lose rate."""
    links = [(rank, (rank + 2) % (2 * HOSTS)) for rank in range(2 * HOSTS)]
    found = {link: channel(link, slow.get(link, 100.0)) for link in links}
    pair = PairRate(0, 0, "", None, None, 100, USUAL, USUAL, 7, 0, 0, "")
    pairs = [replace(pair, rank=a, peer=b, rate=USUAL / slowdown if (a, b) in slow else USUAL) for a, b in links]
    known = Slowness(channels={link: (each,) for link, each in found.items()}, pairs=tuple(pairs))
    return known, {link: found[link] for link in slow}


@pytest.mark.parametrize(
    ("slow", "slowdown", "named"),
    [
        ({(2, 4): 900.0, (3, 5): 900.0}, 5.0, {(2, 4), (3, 5)}),
        ({(2, 4): 900.0, (3, 5): 900.0}, 1.1, set()),
        ({(2, 4): 900.0, (5, 7): 900.0}, 5.0, {(2, 4), (5, 7)}),
        ({(0, 2): 900.0, (5, 7): 900.0}, 5.0, set()),
    ],
    ids=["one path", "queues only", "one host of both", "at other hosts in each ring"],
)
def test_what_all_rings_have_at_one_host_is_no_slowest_link(slow: dict[Link, float], slowdown: float, named: set[Link]) -> None:
    known, links = rings(slow, slowdown)
    assert standing_out(known, links, host_of, 0.5, 1.9).keys() == named


def test_where_nothing_counts_work_requests_times_at_the_nic_bound_them() -> None:
    """One host has both slow links, or each ring has its own; buffers that only queue prove nothing."""
    for slow, named in (({(2, 4): 9e3, (3, 5): 9e3}, {(2, 4), (3, 5)}), ({(0, 2): 9e3, (5, 7): 9e3}, set())):
        known, links = rings(dict(slow), 1.0)
        assert standing_out(replace(known, pairs=()), links, host_of, 0.5, 1.9).keys() == named
    known, links = rings({(2, 4): 900.0, (3, 5): 900.0}, 1.0)
    queued = {link: replace(each, rate=each.usual_rate) for link, each in links.items()}
    assert not standing_out(replace(known, pairs=()), queued, host_of, 0.5, 1.9)


@pytest.mark.parametrize(
    ("slow", "share", "named"),
    [
        ({(0, 2): 300.0, (2, 4): 300.0}, 0.0, {(0, 2), (2, 4)}),
        ({(0, 2): 300.0}, 0.0, set()),
        ({(0, 2): 300.0, (2, 4): 300.0, (1, 3): 300.0}, 0.0, set()),
        ({(0, 2): 300.0, (2, 4): 300.0}, 0.1, set()),
    ],
    ids=["both ways", "one link", "a slow link elsewhere", "a rank that is late"],
)
def test_what_is_slow_both_ways_does_not_only_queue(slow: dict[Link, float], share: float, named: set[Link]) -> None:
    known, links = rings(slow, 1.0)
    late = (Straggler(2, "x", "all_reduce", (0, 2, 4, 6), 40, 40, 40, 1e6, 0, 4e7, share, 0, 0, 0, 0, 0, "x"),) if share else ()
    known = replace(known, pairs=(), stragglers=late)
    assert slow_both_ways(known, links, known.sound_links(links)) == named


def test_a_ring_among_many_is_slow_by_itself() -> None:
    known, links = rings({(2, 4): 900.0}, 1.1)
    assert standing_out(known, links, host_of, 0.5, 1.9).keys() == {(2, 4)}


def test_links_between_two_hosts_share_one_path() -> None:
    one, other = (Blame(link, (link,), (), single=False) for link in ((2, 4), (3, 5)))
    (path,) = on_one_path([one, other], host_of)
    assert (path.ranks, path.links, path.single) == ((2, 3, 4, 5), ((2, 4), (3, 5)), False)


@pytest.mark.parametrize(
    "blames",
    [
        [Blame((2, 4), ((2, 4),), (), single=False), Blame((5, 7), ((5, 7),), (), single=False)],
        [Blame((2,), ((2, 4), (0, 2)), ()), Blame((3, 5), ((3, 5),), (), single=False)],
        [Blame((2, 9), ((2, 9),), (), single=False), Blame((3, 9), ((3, 9),), (), single=False)],
    ],
    ids=["other hosts", "an end that is known", "a host that is not known"],
)
def test_other_links_remain_as_many_faults(blames: list[Blame]) -> None:
    assert on_one_path(blames, lambda rank: None if rank == 9 else host_of(rank)) == tuple(blames)
