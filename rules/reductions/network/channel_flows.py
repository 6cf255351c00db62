"""Channels whose chunks stay at the NIC longer than those of their peers, again and again.

A channel of a communicator leads from one rank to another. Its flows are compared with flows of the same structure (kind of
operation, members, chunks, bytes) on channels between other ranks: what a chunk waits for at the NIC does not depend on who
is late, because it gets there only when its GPU has filled it and the receiver has given credit (Mycroft tables 3 and 4).
Those with the same part in it (from stage to stage, from place to place in a ring) tell more than the others, where there are
enough, and not all of them are slow: what goes the other way may meet other traffic. Where no other pair of ranks has such
flows, the channel is compared with its own past.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from duckdb import DuckDBPyConnection

Times = npt.NDArray[np.float64]

# A chunk that stays twice as long counts; whether it matters is decided by the sum.
SLOW_FACTOR = 2.0
# A channel is sound when what it takes more than its peers is below half of that.
_SOUND_FACTOR = 1.5
# Where work requests say the same, a chunk that stays a third longer counts.
_LONGER_FACTOR = 1.33
_LEAST_FLOWS = 5
_RECURRENCE = 0.6
# Of a short record, flows that all stay many times as long as those of many others are no chance either.
_FEW_FLOWS, _EXTREME_FACTOR, _MANY_PEERS = 3, 4.0, 4
MOST_QUEUED = 16
"""A flow has eight buffers at its NIC at most (NCCL_STEPS), and shares it with that of another channel."""
# Newest flows in a row that are slow: one is an accident.
_NEWEST = 2
# Messages of peers differ by a few per cent.
_SAME_PACE = 1.15
# Of two that are alike, both may be slow.
_LEAST_PEERS = 2
# Of a channel's own past, the first third is what it was like.
_PAST = 3


@dataclass(frozen=True, slots=True)
class ChannelFlows:
    """One channel in flows of one structure, over the last flows in which it was slow, or over all when it never was.

    `flows` of these `slow` took at least twice the `expected_ns` that a buffer spends at the NIC; `typical_ns` is the median,
    `excess_ns` the sum beyond what is expected, `share` its part of the time they span. `rate` bounds the bytes a second from
    above, `usual_rate` that of the peers from below. `since_ns` is the first start of these flows (clock of the sender's
    host) when flows before them were not slow. `peers` counts the pairs of ranks it was compared with, 0: its own past.
    `longer` of the flows took at least a third more than expected; the `newest`, so many in a row, were slow. Each buffer
    carried `rounds` chunks of a flow, and times at the NIC are those of all of them. `pace` is how many times as long as on its
    peers a buffer takes from the GPU to its completion, credit included (medians).
    """

    communicator: str
    kind: str
    sender: int
    receiver: int
    number: int
    bytes: int
    flows: int
    slow: int
    expected_ns: float
    typical_ns: float
    excess_ns: float
    share: float
    rate: float
    usual_rate: float
    since_ns: int | None
    peers: int
    source: str
    longer: int = 0
    newest: int = 0
    rounds: float = 1.0
    pace: float = float("inf")

    @property
    def is_longer(self) -> bool:
        """Whether it takes somewhat longer than its peers most of the time: no more than a support of what else says so."""
        return self.peers > 0 and self.longer >= max(_LEAST_FLOWS, _RECURRENCE * self.flows)

    @property
    def recurs(self) -> bool:
        """Whether it is slow most of the time, often enough not to be chance."""
        often = self.slow >= _LEAST_FLOWS and self.slow >= _RECURRENCE * self.flows
        return often or (self._is_extreme and self.slow == self.flows >= _FEW_FLOWS)

    @property
    def keeps_pace(self) -> bool:
        """Whether its messages move as fast as those of peers, whose buffers only wait for credit instead of for the NIC.

        A ring has one pace, whichever of its links is slow; messages between two ranks have one of their own. Peers that wait
        for credit for longer have receivers that come late, and clear no link.
        """
        return self.kind == "p2p" and self.peers >= _MANY_PEERS and 1 / _SAME_PACE < self.pace < _SAME_PACE

    @property
    def all_slow(self) -> bool:
        """Whether none of its flows, however few, was as fast as those of its peers: it clears nobody."""
        return self.slow == self.flows > 1 and self.peers >= _LEAST_PEERS

    @property
    def _is_extreme(self) -> bool:
        return self.typical_ns >= _EXTREME_FACTOR * self.expected_ns and self.peers >= _MANY_PEERS

    @property
    def sound(self) -> bool:
        """Whether it is surely as fast as its peers, to the end: what became slow shortly before it is none."""
        known = self.newest < _NEWEST and self.flows >= _LEAST_FLOWS and self.peers >= _LEAST_PEERS
        return known and not self.recurs and self.typical_ns < _SOUND_FACTOR * self.expected_ns

    @property
    def slowdown(self) -> float:
        """How many times slower it is at least; below 1 where nothing is proved.

        Buffers that stay longer than all that can queue in front of them do not only queue.
        """
        stays = self.typical_ns / max(MOST_QUEUED * self.expected_ns, 1.0) if self.peers and self.recurs else 0.0
        return max(self.usual_rate / self.rate if self.rate else 1.0, stays)


@dataclass(frozen=True, slots=True)
class _Flows:
    """Flows of one channel and structure in the order of time; `bound` is the longest that its NIC can have been at work.

    `moving` is the time of a buffer at the NIC or in want of credit, `part` are the places of both ends in the communicator.
    """

    key: tuple[str, int, int, int]
    part: tuple[int, int]
    kind: str
    bytes: int
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    nic: Times
    bound: Times
    moving: Times
    source: str
    rounds: float


_CHANNELS = """
SELECT e.kind, e.size, e.total, round(log2(greatest(e.bytes, 1))) AS scale, any_value(e.position), any_value(e.peer),
       e.communicator, e.rank, e.other, e.channel,
       list(e.start_ns ORDER BY e.end_ns, e.locator), list(e.end_ns ORDER BY e.end_ns, e.locator),
       list(e.nic_ns ORDER BY e.end_ns, e.locator),
       list(least(e.nic_ns * e.buffers, e.took_ns) ORDER BY e.end_ns, e.locator),
       list(e.nic_ns + coalesce(e.credit_ns, 0) ORDER BY e.end_ns, e.locator),
       median(e.bytes), any_value(s.path) || '#entry=' || arg_max(e.locator, e.nic_ns), max(e.total / e.buffers)
FROM ended_flows e JOIN sources s USING (source_id) WHERE e.sends AND e.nic_ns IS NOT NULL
GROUP BY e.kind, e.size, e.total, scale, e.communicator, e.rank, e.other, e.channel
ORDER BY e.kind, e.size, e.total, scale, e.communicator, e.rank, e.other, e.channel
"""


def channel_flows(connection: DuckDBPyConnection) -> tuple[ChannelFlows, ...]:
    """All channels of `ended_flows` that have something to be compared with, by structure."""
    alike: dict[tuple[object, ...], list[_Flows]] = defaultdict(list)
    rows = connection.execute(_CHANNELS).fetchall()
    for kind, size, total, scale, *ends, starts, ended, nic, bound, moving, count, source, rounds in rows:
        when = np.array(starts, np.int64), np.array(ended, np.int64)
        times = np.array(nic, float), np.array(bound, float), np.array(moving, float)
        alike[kind, size, total, scale].append(
            _Flows(tuple(ends[2:]), tuple(ends[:2]), kind, int(count), *when, *times, source, rounds)
        )
    return tuple(channel for found in alike.values() for channel in _compared(found))


def _compared(found: Sequence[_Flows]) -> Iterator[ChannelFlows]:
    """Compare each channel with the medians of the channels between other ranks."""
    pairs: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, flows in enumerate(found):
        pairs[flows.key[1:3]].append(place)
    usual = np.array([_middle([found[place] for place in places]) for places in pairs.values()])
    parts = np.array([found[places[0]].part for places in pairs.values()])
    number = {pair: at for at, pair in enumerate(pairs)}
    for flows in found:
        others = np.arange(len(usual)) != number[flows.key[1:3]]
        if others.any():
            yield _channel(flows, _expected(usual[others], (parts[others] == flows.part).all(axis=1)), int(others.sum()))
        elif len(flows.nic) >= _PAST * _LEAST_FLOWS:
            past = len(flows.nic) // _PAST
            yield _channel(flows, np.array([np.median(each[:past]) for each in (flows.nic, flows.bound, flows.moving)]), 0)


def _expected(others: Times, same_part: npt.NDArray[np.bool_]) -> Times:
    """What other pairs of ranks take: those with the same part, unless these are few, or slow against all of them."""
    everybody: Times = np.median(others, axis=0)
    if same_part.sum() < _MANY_PEERS:
        return everybody
    same: Times = np.median(others[same_part], axis=0)
    return same if same[0] < SLOW_FACTOR * everybody[0] else everybody


def _middle(found: Sequence[_Flows]) -> tuple[float, float, float]:
    """Median time at the NIC, of its bound, and in motion, over the channels between two ranks: the slowest does not decide."""
    return (
        float(np.median([np.median(flows.nic) for flows in found])),
        float(np.median([np.median(flows.bound) for flows in found])),
        float(np.median([np.median(flows.moving) for flows in found])),
    )


def _channel(flows: _Flows, expected: Times, peers: int) -> ChannelFlows:
    usual = max(float(expected[0]), 1.0)
    slow = flows.nic >= SLOW_FACTOR * usual
    first = turn(slow)
    nic, starts = flows.nic[first:], flows.starts[first:]
    excess = float((nic - usual).sum())
    span = float(max(int(flows.ends.max()) - int(starts.min()), 1))
    typical = float(np.median(nic))
    communicator, sender, receiver, channel = flows.key
    return ChannelFlows(
        communicator, flows.kind, sender, receiver, channel, flows.bytes, len(nic), int(slow[first:].sum()), usual, typical,
        excess, excess / span, flows.bytes / max(typical, 1.0) * 1e9, flows.bytes / max(float(expected[1]), 1.0) * 1e9,
        int(starts.min()) if first else None, peers, flows.source, int((nic >= _LONGER_FACTOR * usual).sum()),
        int(np.logical_and.accumulate(slow[::-1]).sum()), max(1.0, float(flows.rounds)),
        float(np.median(flows.moving[first:])) / max(float(expected[2]), 1.0),
    )  # fmt: skip


def turn(slow: npt.NDArray[np.bool_]) -> int:
    """Where the last flows begin of which most are slow: the suffix with the most slow ones beyond the others; 0 without."""
    gain = np.cumsum(np.where(slow, 1, -1)[::-1])[::-1]
    best = int(np.argmax(gain))
    return best if gain[best] >= _LEAST_FLOWS else 0


def by_link(found: Sequence[ChannelFlows]) -> Mapping[tuple[int, int], tuple[ChannelFlows, ...]]:
    """Channels by sender and receiver, the one that loses most first."""
    links: dict[tuple[int, int], list[ChannelFlows]] = defaultdict(list)
    for channel in found:
        links[channel.sender, channel.receiver].append(channel)
    return {
        link: tuple(sorted(each, key=lambda channel: (-channel.share, channel.number))) for link, each in sorted(links.items())
    }
