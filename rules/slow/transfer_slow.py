"""Chunks that a rank has handed to its NIC stay there longer than those of its peers, and the job loses time to it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from forensics.model import (
    Anomaly,
    Belief,
    Cause,
    Confidence,
    Evidence,
    Finding,
    Granularity,
    Impact,
    Mechanism,
    Members,
    Resource,
    StageName,
    StageRef,
)
from forensics.rules.interface import Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.calls.positions import Communicators, labelled
from forensics.rules.reductions.epochs.slow_links import JudgedLinks, sound_beside_slow
from forensics.rules.reductions.hardware.causes import Hardware
from forensics.rules.reductions.network.channel_flows import ChannelFlows
from forensics.rules.reductions.network.cuts import cuts
from forensics.rules.reductions.network.like_rings import slow_both_ways, slowdown_of, standing_out
from forensics.rules.reductions.network.line_sharing import SHARED, shares_its_line
from forensics.rules.reductions.network.pair_rates import PairRate
from forensics.rules.reductions.network.slow_ends import Blame, Link, blamed
from forensics.rules.reductions.network.slow_paths import on_one_path
from forensics.rules.reductions.network.slow_rails import on_one_rail, places_of_nics
from forensics.rules.reductions.network.slowness import LEAST_SHARE_BESIDE, LEAST_SLOWDOWN, Slowness
from forensics.rules.reductions.network.starved_hosts import StarvedHosts
from forensics.rules.reductions.network.went_wrong import IntervalFactor, ThroughputFactor, WindowSeconds
from forensics.rules.reductions.ranks.nic_users import NicUsers
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.ranks.shim_logs import ChunkLogs
from forensics.rules.reductions.text.blocked_ranks import blocked_ranks
from forensics.rules.reductions.text.evidence_text import counted, ranks_text
from forensics.rules.reductions.text.seen import Seen

_SHOWN = 3
_ENDS = 2
# Channels that lose at least this part of what the worst one loses tell the stage.
_HEAVY = 0.5
# Of the worst one: where links wait for a much slower one, their traffic meets that of others which it never met before.
_ECHO = 0.2
# Bytes per second from which on a rate is shown in GB/s.
_FAST = 1e8


def _evaluate(
    roster: Roster,
    groups: Communicators,
    slowness: Slowness,
    users: NicUsers,
    hardware: Hardware,
    starved: StarvedHosts,
    judged: JudgedLinks,
    thresholds: Thresholds,
) -> Iterator[Finding]:
    known = slowness
    slow = known.slow_links(thresholds["least_slowdown"], thresholds["least_share_beside"])
    clear = sound_beside_slow(judged)
    slow = {
        link: channel
        for link, channel in slow.items()
        if not any(host.touches(link) for host in starved) and (users.first(link[0]), users.first(link[1])) not in clear
    }
    slow = standing_out(known, slow, roster.host_of, thresholds["most_channels"], thresholds["halved"])
    sound = known.sound_links(slow)
    lost = {link: slowdown_of(known, channel) - 1 for link, channel in slow.items()}
    between = cuts(lost, sound, roster.host_of)
    for cut in between:
        found = sorted((slow[link] for link in cut.links), key=lambda channel: -channel.share)
        if any(_is_material(known, channel, thresholds) for channel in found):
            yield cut.finding(_stage(known, found), _impact(found[0]), map(_channel_text, found[:_SHOWN]))
    slow = {link: slow[link] for link in slow if all(link not in cut.links and lost[link] >= cut.least for cut in between)}
    both = slow_both_ways(known, slow, sound)
    material = [
        link
        for link, channel in slow.items()
        if _is_material(known, channel, thresholds) or (link in both and channel.share >= thresholds["least_share_halved"])
    ]
    weights = {link: channel.share for link, channel in slow.items()}
    blames = [
        (blame, [slow[link] for link in sorted(blame.links, key=lambda link: (-slow[link].share, link))])
        for blame in on_one_path(
            on_one_rail(blamed(weights, material, sound, users), sound, places_of_nics(roster, users), slow), roster.host_of
        )
    ]
    worst = max((slowdown_of(known, found[0]) for _, found in blames), default=1.0)
    for blame, found in blames:
        slowdown = max(slowdown_of(known, found[0]), 1.0)
        if slowdown - 1 < _ECHO * (worst - 1):
            continue
        finding = _finding(roster, slowness, blame, found, thresholds["likely_slowdown"])
        finding = replace(finding, by_design=SHARED if shares_its_line(blame, slowness, sound) else None)
        yield hardware.refined(finding, (Cause.NETWORK_SLOW,), slowdown)
        if victims := {rank for channel in found for rank in _members(groups, channel)} - set(blame.ranks):
            yield blocked_ranks(victims)


def _is_material(slowness: Slowness, channel: ChannelFlows, thresholds: Thresholds) -> bool:
    """Half of the rate counts when it costs anything, less when it costs much, and neither where peers differ by as much."""
    pair = slowness.pair(channel.sender, channel.receiver)
    if pair is not None and not pair.stands_out:
        return False
    counted = pair is not None
    halved = slowdown_of(slowness, channel) >= thresholds["halved" if counted else "halved_bound"]
    return channel.share >= thresholds["least_share_halved" if halved else "least_share"]


def _members(groups: Communicators, channel: ChannelFlows) -> Collection[int]:
    group = labelled(groups, channel.communicator)
    return group.members if group else (channel.sender, channel.receiver)


def _finding(roster: Roster, slowness: Slowness, blame: Blame, found: Sequence[ChannelFlows], likely: float) -> Finding:
    """One end is named only when links to several others are slow; the two ends of a single link cannot be distinguished."""
    first, single = found[0], blame.single
    pair = slowness.pair(first.sender, first.receiver)
    return Finding(
        ranks=blame.ranks,
        cause=Cause.NETWORK_SLOW,
        stage=_stage(slowness, found),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.SUSPECT if _is_along(blame) else _confidence(first, pair, likely),
        evidence=tuple(_evidence(slowness, blame, found)),
        granularity=Granularity.NIC if single and not blame.is_rail else Granularity.LINK,
        members=Members.EACH if single else Members.ONE_OF,
        anomaly=Anomaly.FAIL_SLOW,
        resource=_resource(slowness, blame, found, pair),
        mechanism=Mechanism("slow_flow", "local" if single else "unknown"),
        impact=_impact(first),
        since=roster.since(first.sender, first.since_ns),
        next_steps=(
            f"check ports, cables, PCIe width and error counters of the NICs of {ranks_text(blame.ranks)}",
            "run a point-to-point bandwidth test between the hosts on these NICs, and over another pair for comparison",
        ),
    )


def _is_along(blame: Blame) -> bool:
    """Whether all slow links of a rail lead from one NIC of it to another one: every second one of them explains that too."""
    return blame.is_rail and all(set(link) <= set(blame.ranks) for link in blame.links)


def _impact(channel: ChannelFlows) -> Impact:
    return Impact(round(channel.excess_ns), round(channel.share, 3), None, "arrival")


def _stage(slowness: Slowness, found: Sequence[ChannelFlows]) -> StageRef:
    """The stage of the channels that lose most, as far as they tell it; unknown when they lose in several."""
    roles = slowness.stages
    heavy = [channel for channel in found if channel.share >= _HEAVY * found[0].share]
    stages = [roles.stage(channel.communicator, channel.kind, channel.sender, channel.receiver) for channel in heavy]
    known = [stage for stage in stages if stage.name is not StageName.UNKNOWN]
    if len({stage.name for stage in known}) == 1:
        return known[0]
    return replace(stages[0], name=StageName.UNKNOWN, direction=None)


def _confidence(channel: ChannelFlows, pair: PairRate | None, likely: float) -> Confidence:
    slowdown = max(channel.slowdown, pair.slowdown if pair else 0.0)
    often = channel.recurs or channel.is_longer
    return Confidence.LIKELY if slowdown >= likely and channel.peers > 1 and often else Confidence.SUSPECT


def _evidence(slowness: Slowness, blame: Blame, found: Sequence[ChannelFlows]) -> Iterator[Evidence]:
    for channel in found[:_SHOWN]:
        yield _channel_text(channel)
        if pair := slowness.pair(channel.sender, channel.receiver):
            yield _pair_text(pair)
    if blame.spared:
        links = ", ".join(f"{sender} to {receiver}" for sender, receiver in blame.spared[:_SHOWN])
        whose = "it is not the NIC of the other end" if blame.single else "not all links of its ends are slow"
        yield Evidence(f"chunks from rank {links} take as long as on their peers: {whose}")
    if blame.is_rail:
        rail = f"NICs of {ranks_text(blame.ranks)} have one number on their hosts, and each slow link has one of them"
        yield Evidence(f"{rail}: what joins them, a rail or its switch, is nearer than as many faults")
        if _is_along(blame):
            yield Evidence("every second of these NICs alone, slow by the same, would leave the same", None, supports=False)
    elif blame.single and len(blame.ranks) > 1:
        yield Evidence(f"{ranks_text(blame.ranks)} have one NIC together, and links of each are slow")
    elif len(blame.ranks) > _ENDS:
        yield Evidence(f"{counted(len(blame.links), 'link')} between the same two hosts are slow: what they share is the path")
    if not found[0].peers:
        yield Evidence("no other ranks have such flows: the channel was compared with its own past only", None, supports=False)


def _channel_text(channel: ChannelFlows) -> Evidence:
    what = "messages" if channel.kind == "p2p" else channel.kind
    against = f"{channel.expected_ns / 1e6:.2f} ms " + ("on its peers" if channel.peers else "before")
    return Evidence(
        f"rank {channel.sender} to rank {channel.receiver}, {what} of {channel.communicator}, channel {channel.number}: "
        f"a buffer stays {channel.typical_ns / 1e6:.2f} ms at the NIC, {against}; "
        f"in {channel.slow} of {channel.flows} operations, {100 * channel.share:.0f} % of the time",
        channel.source,
    )


def _pair_text(pair: PairRate) -> Evidence:
    rates = f"{_rate(pair.rate)} while it has work, others of the same use {_rate(pair.usual_rate)}"
    return Evidence(f"queue pair {pair.name} of rank {pair.rank} to rank {pair.peer} moves {rates}", pair.source)


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e9:.2f} GB/s" if bytes_per_second >= _FAST else f"{bytes_per_second / 1e6:.2f} MB/s"


def _resource(slowness: Slowness, blame: Blame, found: Sequence[ChannelFlows], pair: PairRate | None) -> Resource:
    channels = {channel.number for channel in found}
    mine = pair if pair and pair.rank in blame.ranks else None
    others = sorted({rank for link in blame.links for rank in link} - set(blame.ranks)) or list(blame.ranks)
    return Resource(
        nic=mine.nic if mine else None,
        port=str(mine.port) if mine and mine.port else None,
        channel=found[0].number if len(channels) == 1 and _others_are_sound(slowness.channels, found[0]) else None,
        queue_pair=mine.name if mine else None,
        peer_ranks=tuple(others),
    )


def _others_are_sound(channels: Mapping[Link, tuple[ChannelFlows, ...]], slow: ChannelFlows) -> bool:
    """Whether other channels of the same link are as fast as their peers."""
    rest = [channel for channel in channels[slow.sender, slow.receiver] if channel.number != slow.number]
    return bool(rest) and all(channel.sound for channel in rest)


def _clears(seen: Seen, logs: ChunkLogs, slowness: Slowness) -> str | None:
    """Only where every channel was compared with peers often enough and is surely as fast, and no work requests are slow.

    Packets that are lost now and then hold up few chunks, each for long: most operations are as fast as others.
    """
    compared = [channel for found in slowness.channels.values() for channel in found]
    lost = any(pair.slowdown >= LEAST_SLOWDOWN and pair.stands_out for pair in slowness.pairs)
    if lost or not compared or not all(channel.sound for channel in compared) or not seen.all_in(logs):
        return None
    return f"on {counted(len(compared), 'channel')} between ranks chunks stay at the NIC about as long as on others"


RULE = Rule(
    code="FX171",
    name="transfer-slow",
    seed="Mycroft section 5.2, Tables 3 and 4, and VenusTrace section 3.2.2",
    needs=(Need(ChunkLogs, "chunks", "only NCCL's profiler interface shows the time of chunks at the NIC"),),
    thresholds=(
        Threshold("least_slowdown", LEAST_SLOWDOWN, "by work requests: a smaller loss of bandwidth accuses nobody"),
        Threshold("halved", 1.9, "Mycroft's trigger: a rate that dropped by half; latency hides a little of it"),
        Threshold("halved_bound", 1.4, "without work requests: times at the NIC bound a loss from below, here three tenths"),
        Threshold("least_share_halved", 0.02, "of the time: a rate that dropped by half may cost nothing, hidden by overlap"),
        Threshold("least_share", 0.1, "of the time: a smaller drop must cost much before it accuses anybody"),
        Threshold("most_channels", 0.5, "of all: where more have a slow link, these are the slowest of rings of like links"),
        Threshold("likely_slowdown", 1.4, "against peers; a smaller one is a suspicion only"),
        Threshold("least_share_beside", LEAST_SHARE_BESIDE, "of the time: a link that supports a case must show it"),
        Threshold("onset_interval", 2.0, 'onset (Mycroft section 4.3): "the operation interval doubles"', IntervalFactor),
        Threshold("onset_throughput", 2.0, 'onset (Mycroft section 4.3): "its throughput drops by half"', ThroughputFactor),
        Threshold("onset_window_s", 10.0, "seconds before the onset that are read (Mycroft section 7.4)", WindowSeconds),
    ),
    concludes="The NIC, or the two ends of the link, on which chunks take longer than on their peers.",
    evaluate=_evaluate,
    clears=_clears,
)
