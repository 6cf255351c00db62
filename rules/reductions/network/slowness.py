"""What shim logs tell of the speed of a job that moves: channels, queue pairs, and stragglers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.network.call_paces import LEAST_FACTOR, LEAST_SHARE, CallPaces
from forensics.rules.reductions.network.channel_flows import MOST_QUEUED, ChannelFlows, by_link, channel_flows
from forensics.rules.reductions.network.ended_flows import Windows, busiest, show_ended_flows
from forensics.rules.reductions.network.flow_stages import FlowStages, flow_stages
from forensics.rules.reductions.network.full_lines import full_links
from forensics.rules.reductions.network.gpu_holds import GpuHold, gpu_holds
from forensics.rules.reductions.network.group_paces import GroupPaces, group_paces
from forensics.rules.reductions.network.pair_rates import PairRate, pair_rates
from forensics.rules.reductions.network.poll_gaps import longest_gap, poll_gaps
from forensics.rules.reductions.network.proxy_pauses import Pauses, pauses
from forensics.rules.reductions.network.slow_ends import Link
from forensics.rules.reductions.network.stragglers import Straggler, stragglers
from forensics.rules.reductions.network.unheard_members import HeardGroup, heard_groups, may_wait_unseen
from forensics.rules.reductions.network.went_wrong import FlowWindow, JobOnset, WindowSeconds, flow_window
from forensics.rules.reductions.progress.liveness import Liveness
from forensics.rules.reductions.ranks.shim_logs import ShimLogs, last_beats, source_ids
from forensics.rules.reductions.steps.times import StepTimes

LEAST_SLOWDOWN = 1.33
"""Where work requests are counted: a smaller loss of bandwidth is no case."""
LEAST_SHARE_BESIDE = 0.005
"""Of the time: a link that loses less shows nothing."""
# Of a record of a step or two: flows of a link, none of which was as fast as those of its peers, and what its queue pairs lose
# in all that they moved. A third of the rate is lost by chance in so few.
_FEW_FLOWS, _HALVED, _MANY_PEERS = 3, 1.9, 4
# Of the order of arrival, what is below is the scheduler's.
_LEAST_LATENESS_NS = 100_000
LEAST_PAUSE_NS = 5_000_000
"""A proxy that is scheduled looks every few microseconds; a pause of this length is not one of its turns."""
# A proxy that does not run sees completions late too: the smaller part is the consequence.
_PAUSE_FACTOR = 3.0
# Of what a buffer stays too long: on average half of a gap, and not every buffer meets one.
_OF_GAP = 0.5
# Of the rate that others reach at least: what moves less in the time of its buffers is at the NIC for latency, and would be as
# long on a slow one.
_LEAST_OF_RATE = 0.1


@dataclass(frozen=True, slots=True)
class Slowness:
    """Flows that ended, reduced; empty where there are no shim logs or the job does not move."""

    channels: Mapping[Link, tuple[ChannelFlows, ...]] = field(default_factory=dict)
    pairs: tuple[PairRate, ...] = ()
    stages: FlowStages = field(default_factory=FlowStages)
    stragglers: tuple[Straggler, ...] = ()
    pauses: Mapping[Link, Pauses] = field(default_factory=dict)
    holds: tuple[GpuHold, ...] = ()
    unpolled: Mapping[int, float] = field(default_factory=dict)
    unstated: tuple[Straggler, ...] = ()
    paces: GroupPaces = field(default_factory=GroupPaces)
    longest_gap_ns: float = 0.0
    full: Set[Link] = frozenset()
    _slowest: dict[tuple[int, int | None], PairRate] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for pair in sorted(self.pairs, key=lambda pair: (pair.slowdown, pair.name), reverse=True):
            self._slowest.setdefault((pair.rank, pair.peer), pair)

    @property
    def most_awaited(self) -> float:
        """Largest share of the time that operations wait for one rank, those included that may wait for one without a log."""
        return max((each.share for each in (*self.stragglers, *self.unstated)), default=0.0)

    def is_unpolled(self, rank: int, excess_ns: float) -> bool:
        """Whether the proxy of a rank looks so seldom that what took longer by `excess_ns` was only seen late."""
        return self.unpolled.get(rank, 0.0) >= max(1.0, _OF_GAP * excess_ns)

    def pair(self, sender: int, receiver: int) -> PairRate | None:
        """The slowest queue pair of a link, against its peers."""
        return self._slowest.get((sender, receiver))

    def slow_links(
        self, least_slowdown: float = LEAST_SLOWDOWN, least_share: float = LEAST_SHARE_BESIDE
    ) -> dict[Link, ChannelFlows]:
        """Links that are slow again and again, with the channel that loses most; work requests must not speak against it.

        Where they say the same, less than half of the rate counts too, and of a short record a few flows. Before the slowest
        link of a ring buffers queue: one whose group is as fast as others is not slow. So they do around a GPU that is late.
        """
        found = {link: self._slow_channel(link, least_slowdown, least_share) for link in self.channels}
        return {
            link: channel
            for link, channel in found.items()
            if channel is not None and not self._is_of_proxy(link, channel) and not self._is_of_gpu(link, channel)
        }

    def _slow_channel(self, link: Link, least_slowdown: float, least_share: float) -> ChannelFlows | None:
        pair = self.pair(*link)
        if pair is not None and pair.slowdown < least_slowdown:
            return None
        stated = pair is not None and pair.slowdown >= LEAST_SLOWDOWN
        few = pair is not None and self._is_slow_so_far(link, pair)
        slow = (channel for channel in self.channels[link] if channel.recurs or (stated and channel.is_longer) or few)
        return next((each for each in slow if each.share >= least_share and not self._keeps_up(each, pair)), None)

    def _keeps_up(self, channel: ChannelFlows, pair: PairRate | None) -> bool:
        """Whether a link whose buffers stay long is as fast as its group needs.

        By the time from end to end, or of messages, alone that counts less than work requests that are served at half of the
        rate: buffers that queue before a link as fast as others are not. Nor are those of ranks that share a line which is
        full (`full`), unless it was not so before.
        """
        halved = pair is not None and _is_halved(pair)
        shares = channel.since_ns is None and (channel.sender, channel.receiver) in self.full
        is_weak = channel.keeps_pace or self.paces.is_told_by_ends(channel)
        return self._is_level(channel) and not (halved and is_weak and not shares)

    def _is_level(self, channel: ChannelFlows) -> bool:
        """Whether messages, or the collectives of its group, take no longer than those of others."""
        return channel.keeps_pace or self.paces.keeps_up(channel)

    def slow_so_far(self) -> dict[Link, ChannelFlows]:
        """Links on which no flow of some channel was fast, too few to accuse them; nothing else speaks against it."""
        pairs = {link: self.pair(*link) for link in self.channels}
        clear = {link for link, pair in pairs.items() if pair is not None and pair.slowdown < LEAST_SLOWDOWN}
        found = {
            link: next((each for each in found if each.all_slow and not self._is_level(each)), None)
            for link, found in self.channels.items()
        }
        return {link: channel for link, channel in found.items() if channel is not None and link not in clear}

    def _is_slow_so_far(self, link: Link, pair: PairRate) -> bool:
        """Whether a short record has no flow of a link that was not slow, and its queue pairs lost half of their rate."""
        found = self.channels[link]
        flows = sum(each.flows for each in found)
        return (
            _is_halved(pair)
            and flows >= _FEW_FLOWS
            and all(each.slow == each.flows and each.peers >= _MANY_PEERS for each in found)
        )

    def seen_late(self, least_share: float = LEAST_SHARE_BESIDE) -> dict[int, tuple[ChannelFlows, float]]:
        """Ranks that see completions late because they seldom look: where they lose most, and what over all their links.

        A rank that is late to its collectives passes on what it sees late; that counts where it is more.
        """
        found = {}
        for rank in self.unpolled:
            own = [each[0] for link, each in self.channels.items() if link[0] == rank and each[0].share >= least_share]
            blind = [each for each in own if self._is_seen_late(each)]
            late = max((each.share for each in self.stragglers if each.rank == rank), default=0.0)
            if blind:
                found[rank] = max(blind, key=lambda each: each.share), max(sum(each.share for each in blind), late)
        return found

    def _is_of_proxy(self, link: Link, channel: ChannelFlows) -> bool:
        """Whether its proxy accounts for it: it hands over late, or sees late what has ended.

        Chunks also wait beside a NIC that is at work with others: where its work requests show it slow, only a pause in which
        it surely had none is the proxy's.
        """
        pause, pair = self.pauses.get(link), self.pair(*link)
        paused = pause is not None and pause.unsent_ns >= _PAUSE_FACTOR * channel.excess_ns
        at_work = pause is not None and not pause.paused and pair is not None and _is_halved(pair)
        return (paused and not at_work) or self._is_seen_late(channel)

    def _is_of_gpu(self, link: Link, channel: ChannelFlows) -> bool:
        """Whether its buffers may queue at once: the GPU of one end takes chunks late, and no work requests are counted."""
        held = any(hold.rank in link and hold.communicator == channel.communicator for hold in self.holds)
        return held and self.pair(*link) is None and channel.typical_ns < MOST_QUEUED * channel.expected_ns

    def _is_seen_late(self, channel: ChannelFlows) -> bool:
        """Whether gaps between polls account for what its chunks, one by one, seem to stay too long."""
        excess = max(channel.typical_ns - channel.expected_ns, channel.excess_ns / channel.flows)
        return self.is_unpolled(channel.sender, excess / channel.rounds)

    def sound_links(self, slow: Collection[Link]) -> tuple[Link, ...]:
        """Links that are surely as fast as others, by those of their channels that carried most operations.

        Where its work requests are slow it is not: what two ranks on one NIC send in turn looks as fast as what others send
        together. Nor where all operations of another kind were slow on it, as few as they are; nor by a few bytes alone.
        """
        least = _LEAST_OF_RATE * max((each.usual_rate for found in self.channels.values() for each in found), default=0.0)
        stated = {link: [each for each in found if each.usual_rate >= least] for link, found in self.channels.items()}
        return tuple(
            link for link, each in self.channels.items() if link not in slow and self._is_sound(link, each, stated[link])
        )

    def _is_sound(self, link: Link, channels: Sequence[ChannelFlows], stated: Sequence[ChannelFlows]) -> bool:
        pair = self.pair(*link)
        if (pair is not None and pair.slowdown >= LEAST_SLOWDOWN) or any(channel.all_slow for channel in channels):
            return False
        most = max((channel.flows for channel in stated), default=0)
        return most > 0 and all(channel.sound for channel in stated if channel.flows == most)


def _is_halved(pair: PairRate) -> bool:
    """Whether work requests of a link are served at half of the rate of many others, or less."""
    return pair.slowdown >= _HALVED and pair.stands_out and pair.peers >= _MANY_PEERS


@reduction
def slowness(
    connection: DuckDBPyConnection,
    logs: ShimLogs,
    liveness: Liveness,
    onset: JobOnset,
    seconds: WindowSeconds,
    steps: StepTimes,
    calls: CallPaces,
) -> Slowness:
    """Reduce the logs of a job that may move, around the moment at which it went wrong where the logs tell it."""
    if not logs or not liveness.may_move:
        return Slowness()
    sources = source_ids(logs)
    pairs = pair_rates(connection, sources)
    window = flow_window(onset, seconds, steps.typical_ns)
    if not show_ended_flows(connection, sources, _windows(logs, window, busiest(connection, sources))):
        return Slowness(pairs=pairs)
    stated, unstated = _split(stragglers(connection, _LEAST_LATENESS_NS), heard_groups(connection, sources))
    channels = channel_flows(connection)
    hosts = {rank: log.host for rank, log in logs.items()}
    slower = (each.ranks for each in calls.slow(LEAST_FACTOR, LEAST_SHARE) if each.kind != "send")
    found = Slowness(
        channels=by_link(channels),
        pairs=pairs,
        stages=flow_stages(connection, sources),
        stragglers=stated,
        pauses=pauses(connection, LEAST_PAUSE_NS),
        holds=gpu_holds(connection),
        unpolled=poll_gaps(connection, sources),
        unstated=unstated,
        paces=group_paces(connection, channels, hosts, slower),
        longest_gap_ns=longest_gap(connection, sources),
        full=full_links(connection, logs),
    )
    connection.execute("DROP TABLE temp.main.ended_flows")
    return found


def _split(found: Iterable[Straggler], groups: Sequence[HeardGroup]) -> tuple[tuple[Straggler, ...], tuple[Straggler, ...]]:
    """Stragglers of which the logs show all that they waited for, and those that may wait for a rank without a log."""
    stated: list[Straggler] = []
    unstated: list[Straggler] = []
    for late in found:
        (unstated if may_wait_unseen(late.rank, late.members, groups) else stated).append(late)
    return tuple(stated), tuple(unstated)


def _windows(logs: ShimLogs, window: FlowWindow | None, newest: Mapping[int, int]) -> Windows:
    """The same part of each log, counted from its end: clocks of hosts differ, and logs are collected together.

    Where nothing recurs, from the begin of the `newest` flows (by source) of the log that has most of them in a time.
    """
    until = last_beats(logs.values())
    if window is None and newest:
        window = FlowWindow(
            min(until[rank] - newest[log.source_id] for rank, log in logs.items() if log.source_id in newest), 0
        )
    if window is None:
        return {}
    return {log.source_id: (until[rank] - window.earliest_ns, until[rank] - window.latest_ns) for rank, log in logs.items()}
