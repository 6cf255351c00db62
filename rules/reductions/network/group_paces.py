"""Whether the collectives of a group take longer than those of other groups, once all members are there.

A ring goes at the pace of its slowest link, and before that link its buffers queue: there they stay many times as long as on
the others, also where it is slower by a hundredth. Time at the NIC alone is no loss, then. A link that is much slower makes the
operations of its group last longer than those of groups that do the same elsewhere (Mycroft section 4.3, the interval of
operations; Pulse section 6.2 takes the time in which something moves likewise).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import log2

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.network.channel_flows import SLOW_FACTOR, ChannelFlows

# Operations of a group before it has a pace, and groups that must be as fast.
_LEAST_OPERATIONS, _LEAST_GROUPS = 3, 2
# Sound groups differ by a few per cent.
_SAME_PACE = 1.15

# The last member that came sees how long it took; what the operation before it had not left free does not count.
_PACES = f"""
WITH ends AS (
    SELECT communicator, kind, number, rank, any_value(size) AS size, max(round(log2(greatest(bytes, 1))))::INTEGER AS scale,
           min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM ended_flows WHERE kind <> 'p2p' AND number IS NOT NULL GROUP BY communicator, kind, number, rank
), lasted AS (
    SELECT communicator, kind, number, size, scale, end_ns - greatest(start_ns, before_ns) AS took_ns,
           coalesce(start_ns < before_ns, false) AS ahead
    FROM (SELECT *, lag(end_ns) OVER (PARTITION BY communicator, rank ORDER BY end_ns) AS before_ns FROM ends)
), operations AS (
    SELECT communicator, kind, size, scale, number, min(took_ns) AS took_ns, bool_and(ahead) AS ahead FROM lasted GROUP BY ALL
)
SELECT communicator, kind, size, scale, median(took_ns), 2 * count(*) FILTER (ahead) > count(*) FROM operations GROUP BY ALL
HAVING count(*) >= {_LEAST_OPERATIONS} ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class GroupPaces:
    """What an operation takes (median, ns) by kind, members and power of two of its bytes, then by communicator.

    `worst` is the link (sender, receiver) of a communicator on which such buffers stay longest, where that is long, by kind.
    `slower` are ranks of groups whose calls take longer than those of others by the time that the device was in them. `ahead`
    are communicators, kinds and powers of two of groups that mostly hand an operation over before the one before it has ended:
    what they seem to take is the time from end to end, which groups that wait for each other have in common.
    """

    took: Mapping[tuple[str, int | None, int], Mapping[str, float]] = field(default_factory=dict)
    worst: Mapping[tuple[str, str, int], tuple[int, int]] = field(default_factory=dict)
    hosts: Mapping[int, str | None] = field(default_factory=dict)
    slower: tuple[frozenset[int], ...] = ()
    ahead: frozenset[tuple[str, str, int]] = frozenset()

    def is_told_by_ends(self, channel: ChannelFlows) -> bool:
        """Whether the pace of its group is that of a host which runs ahead of its device."""
        return (channel.communicator, channel.kind, _scale(channel)) in self.ahead

    def keeps_up(self, channel: ChannelFlows) -> bool:
        """Whether its group is as fast as most groups of its kind, none of them with a slow link at the same hosts.

        Where all of several are as fast, it is enough that they do not all have it at one of these hosts: a slow host would
        hold up the others too.
        """
        if any({channel.sender, channel.receiver} <= ranks for ranks in self.slower):
            return False
        kind, scale, at = channel.kind, _scale(channel), self._places((channel.sender, channel.receiver))
        for (name, _, size), took in self.took.items():
            if (name, size) == (kind, scale) and channel.communicator in took:
                others = [label for label in took if label != channel.communicator]
                alike = [label for label in others if took[channel.communicator] < _SAME_PACE * took[label]]
                worst = [self._places(self.worst.get((label, kind, scale), ())) for label in alike]
                if len(alike) == len(others) >= _LEAST_GROUPS:
                    return not at.intersection(*worst)
                return sum(not at & places for places in worst) >= max(_LEAST_GROUPS, len(others) / 2)
        return False

    def _places(self, ranks: Iterable[int]) -> set[int | str]:
        """Hosts of ranks: one may be slow for all groups; a rank whose host is not known is a place of its own."""
        return {self.hosts.get(rank) or rank for rank in ranks}


def group_paces(
    connection: DuckDBPyConnection,
    channels: Iterable[ChannelFlows],
    hosts: Mapping[int, str | None],
    slower: Iterable[Iterable[int]] = (),
) -> GroupPaces:
    """Read the paces of all groups in `ended_flows`, of which these are the channels; `slower` are ranks of slow groups.

    A host that runs ahead of its device hands over an operation long before it begins: then all take as long as a layer, and
    what recorders tell of the device shows more.
    """
    took: dict[tuple[str, int | None, int], dict[str, float]] = defaultdict(dict)
    ahead: set[tuple[str, str, int]] = set()
    for label, kind, size, scale, length, is_ahead in connection.execute(_PACES).fetchall():
        took[kind, size, scale][label] = length
        ahead |= {(label, kind, scale)} if is_ahead else set()
    worst: dict[tuple[str, str, int], ChannelFlows] = {}
    for channel in channels:
        place = channel.communicator, channel.kind, _scale(channel)
        is_worst = place not in worst or channel.typical_ns > worst[place].typical_ns
        if is_worst and channel.typical_ns >= SLOW_FACTOR * channel.expected_ns:
            worst[place] = channel
    return GroupPaces(
        took,
        {place: (each.sender, each.receiver) for place, each in worst.items()},
        hosts,
        tuple(map(frozenset, slower)),
        frozenset(ahead),
    )


def _scale(channel: ChannelFlows) -> int:
    return round(log2(max(channel.bytes, 1)))
