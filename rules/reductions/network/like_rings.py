"""Slow links of rings whose links are all alike: which of them are more than the slowest one that every ring has.

In such a ring the slowest link, by however little, is at work all the time, and its buffers queue: there they stay many times
as long as on the others. Work requests are served at nearly the same rate all the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from statistics import median

from forensics.rules.reductions.network.channel_flows import ChannelFlows
from forensics.rules.reductions.network.pair_rates import PairRate
from forensics.rules.reductions.network.slow_ends import Link
from forensics.rules.reductions.network.slowness import LEAST_SHARE_BESIDE, Slowness

HostOf = Callable[[int], str | None]
"""The host of a rank, None where it is not known."""
_Channel = tuple[str, int]

# Of what the slowest links of like rings lose: more is a loss of its own.
_BY_FAR = 2.0
_NEARLY_ALL = 0.9  # of the operations


def standing_out(
    known: Slowness, slow: Mapping[Link, ChannelFlows], host_of: HostOf, most: float, halved: float
) -> dict[Link, ChannelFlows]:
    """Slow links, unless more than `most` of all channels have one: then those that are slower by far than these are.

    Where one rank has an end of most of them, all count. So do they where that is one host, and its work requests are served
    at one in `halved` of the rate of others, or its buffers stay as long where nothing counts these: NICs of it, or its path to
    another host, are then what the rings have in common.
    """
    every = {each for found in known.channels.values() for each in _numbers(found)}
    by_rank: dict[int, set[_Channel]] = defaultdict(set)
    by_host: dict[str | int, set[_Channel]] = defaultdict(set)
    for link in slow:
        channels = _numbers(known.channels[link])
        for rank in link:
            by_rank[rank] |= channels
            if _is_served_slowly(known.pair(*link), slow[link], halved):
                by_host[host_of(rank) or rank] |= channels
    struck = set[_Channel]().union(*by_rank.values())
    # All channels may go over one NIC, where each host has one.
    together = max(map(len, (*by_rank.values(), *by_host.values())), default=0)
    if len(struck) <= most * len(every) or together > most * len(struck):
        return dict(slow)
    lost = {link: slowdown_of(known, channel) - 1 for link, channel in slow.items()}
    usual = median(lost.values())
    return {link: channel for link, channel in slow.items() if lost[link] > max(_BY_FAR * usual, 0.0)}


def slow_both_ways(known: Slowness, slow: Mapping[Link, ChannelFlows], sound: Collection[Link]) -> Set[Link]:
    """Links of a rank that is slow in nearly all operations both ways, to several others, while all other links are sound.

    Buffers that only queue do so before one link, or before a rank that comes late: then this says nothing. Nor does it where
    work requests are counted.
    """
    found = set[Link]()
    for rank in {rank for link in slow for rank in link}:
        mine = {link for link in known.channels if rank in link}
        others, ways = {end for link in mine for end in link} - {rank}, {link[0] == rank for link in mine}
        often = mine <= slow.keys() and all(slow[each].slow >= _NEARLY_ALL * slow[each].flows for each in mine)
        late = any(each.rank == rank and each.share >= LEAST_SHARE_BESIDE for each in known.stragglers)
        if len(others) > 1 and len(ways) > 1 and often and not late and known.channels.keys() - mine <= {*sound}:
            found |= {link for link in mine if known.pair(*link) is None}
    return found


def slowdown_of(known: Slowness, channel: ChannelFlows) -> float:
    """How many times as long a transfer takes: by work requests where they are counted, else as a bound from below."""
    pair = known.pair(channel.sender, channel.receiver)
    return pair.slowdown if pair else channel.slowdown


def _numbers(found: Sequence[ChannelFlows]) -> set[_Channel]:
    return {(channel.communicator, channel.number) for channel in found if channel.peers}


def _is_served_slowly(pair: PairRate | None, channel: ChannelFlows, halved: float) -> bool:
    return channel.slowdown >= halved if pair is None else pair.stands_out and pair.slowdown >= halved
