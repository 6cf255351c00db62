"""Chunks are ready, credit is given, and the proxy thread of a rank does not hand them over, or does not look at its NIC."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
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
)
from forensics.rules.interface import Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.hardware.cores import BusyHosts, shown_by_cores
from forensics.rules.reductions.network.channel_flows import ChannelFlows
from forensics.rules.reductions.network.long_calls import LongCalls, statement
from forensics.rules.reductions.network.other_traffic import SharedNics
from forensics.rules.reductions.network.proxy_pauses import Pauses
from forensics.rules.reductions.network.slow_ends import Blame, blamed
from forensics.rules.reductions.network.slowness import LEAST_PAUSE_NS, Slowness
from forensics.rules.reductions.network.starved_hosts import StarvedHost, StarvedHosts
from forensics.rules.reductions.ranks.nic_users import NicUsers
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.ranks.shim_logs import ChunkLogs
from forensics.rules.reductions.text.evidence_text import counted, ranks_text
from forensics.rules.reductions.text.seen import Seen

_SHOWN = 3
# Operations on a link before nothing that paused says anything.
_LEAST_SEEN = 5


def _evaluate(
    slowness: Slowness,
    busy: BusyHosts,
    roster: Roster,
    shared: SharedNics,
    long: LongCalls,
    starved: StarvedHosts,
    thresholds: Thresholds,
) -> Iterator[Finding]:
    for host in starved:
        if max(each.share for each in host.paused) >= thresholds["least_share"]:
            yield shown_by_cores(_of_host(slowness, host), busy, roster)
            return
    slow, meets = slowness.slow_links(), _with_others(slowness, shared)
    paused = {
        link: each
        for link, each in slowness.pauses.items()
        if link not in slow and (each.communicator, each.kind) not in meets and not _is_echo(each, slow.values())
    }
    weights = {link: each.share for link, each in paused.items() if each.paused >= thresholds["least_pauses"]}
    material = [link for link, each in paused.items() if link in weights and each.share >= _least_share(each, thresholds)]
    for blame in (_narrowed(each, long) for each in blamed(weights, material, (), NicUsers())):
        found = [paused[link] for link in sorted(blame.links, key=lambda link: (-weights[link], link))]
        finding = _finding(slowness, blame, found, thresholds["likely_pauses"])
        yield shown_by_cores(_beside(finding, long) if blame.ranks == (long.rank,) else finding, busy, roster)
    named = {rank for link in material for rank in link}
    if long.rank is not None and long.rank not in named:
        yield from _of_long_calls(slowness, [each for link, each in paused.items() if link in weights], long, thresholds)
    for rank, (channel, share) in slowness.seen_late().items():
        if rank not in named and share >= thresholds["least_share"]:
            yield shown_by_cores(_unpolled(slowness, channel, share), busy, roster)


def _narrowed(blame: Blame, long: LongCalls) -> Blame:
    """Of the two ends of a link the one that has part in the long calls of other groups as well."""
    return replace(blame, ranks=(long.rank,), single=True) if not blame.single and long.rank in blame.ranks else blame


def _beside(finding: Finding, long: LongCalls) -> Finding:
    """With what recorders show of the same rank."""
    return replace(finding, evidence=(finding.evidence[0], Evidence(statement(long), long.found[0].source)))


def _of_long_calls(
    slowness: Slowness, paused: Sequence[Pauses], long: LongCalls, thresholds: Thresholds
) -> Iterator[Finding]:  # fmt: skip
    """The rank that all long collectives share, whose proxy paused in some of them: with the others they cost enough.

    What a link shows, either end of it may be to blame for; the other one has no part in the long calls of other groups.
    """
    own = max(
        (each for each in paused if long.rank in (each.sender, each.receiver)), key=lambda each: each.lost_ns, default=None
    )
    if own is None or long.rank is None or not own.share:
        return
    lost = sum(each.took_ns - each.usual_ns for each in long.found if set(each.ranks) != {own.sender, own.receiver})
    share = min(1.0, (own.lost_ns + lost) / own.lost_ns * own.share)
    if share < thresholds["least_share"]:
        return
    blame = Blame((long.rank,), ((own.sender, own.receiver),), ())
    yield replace(
        _beside(_finding(slowness, blame, [own], thresholds["likely_pauses"]), long),
        confidence=Confidence.LIKELY,
        impact=Impact(round(own.lost_ns + lost), round(share, 3), None, "arrival"),
    )


def _with_others(slowness: Slowness, shared: SharedNics) -> set[tuple[str, str]]:
    """Operations, by communicator and kind, of ranks whose lines others fill: all who take part wait for these."""
    ranks = {rank for nic in shared for rank in nic.ranks}
    found = (each for link, channels in slowness.channels.items() if ranks & set(link) for each in channels)
    return {(each.communicator, each.kind) for each in found}


def _is_echo(pause: Pauses, slow: Collection[ChannelFlows]) -> bool:
    """Whether a link of one of its ranks is slow in the same operations, and loses more: its rank has that to wait for."""
    alike = (each for each in slow if (each.communicator, each.kind) == (pause.communicator, pause.kind))
    return any({pause.sender, pause.receiver} & {each.sender, each.receiver} and each.share > pause.share for each in alike)


def _unpolled(slowness: Slowness, channel: ChannelFlows, share: float) -> Finding:
    """A rank whose proxy looks at its queue pairs in long intervals, which is as long as its chunks stay too long."""
    rank = channel.sender
    return Finding(
        ranks=(rank,),
        cause=Cause.PROXY_DELAY,
        stage=slowness.stages.stage(channel.communicator, channel.kind, channel.sender, channel.receiver),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY,
        evidence=(
            Evidence(
                f"the proxy of rank {rank} does not poll its queue pairs for {slowness.unpolled[rank] / 1e6:.1f} ms "
                "at a time (median over its samples), ten times as long as others",
                channel.source,
            ),
            Evidence(
                f"its chunks to rank {channel.receiver} seem to stay {_mean_ns(channel) / 1e6:.1f} ms at the NIC on average, "
                f"{channel.expected_ns / channel.rounds / 1e6:.1f} ms on its peers: no longer than it does not poll",
                channel.source,
            ),
        ),
        granularity=Granularity.RANK,
        anomaly=Anomaly.FAIL_SLOW,
        resource=Resource(peer_ranks=(channel.receiver,)),
        mechanism=Mechanism("late_end", "local"),
        impact=Impact(round(channel.excess_ns), round(min(1.0, share), 3), None, "arrival"),
        next_steps=_next_steps((rank,)),
    )


def _mean_ns(channel: ChannelFlows) -> float:
    """Of one chunk."""
    return (channel.expected_ns + channel.excess_ns / channel.flows) / channel.rounds


def _next_steps(ranks: Sequence[int]) -> tuple[str, ...]:
    return (
        f"check the NCCL proxy threads of {ranks_text(ranks)}: are they scheduled, do they share a core",
        "check CPU limits, pinning and interrupts on these hosts",
    )


def _least_share(each: Pauses, thresholds: Thresholds) -> float:
    """Of the time: a few pauses are two accidents of a busy host, unless they cost the job more than that."""
    return thresholds["least_share" if each.paused >= thresholds["likely_pauses"] else "least_share_of_few"]


def _finding(slowness: Slowness, blame: Blame, found: Sequence[Pauses], likely: float) -> Finding:
    """A rank is named when its links to several others paused: of one link alone either end may be to blame."""
    first, single = found[0], blame.single
    return Finding(
        ranks=blame.ranks,
        cause=Cause.PROXY_DELAY,
        stage=slowness.stages.stage(first.communicator, first.kind, first.sender, first.receiver),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY if sum(each.paused for each in found) >= likely else Confidence.SUSPECT,
        evidence=tuple(_evidence(found)),
        granularity=Granularity.RANK if single else Granularity.LINK,
        members=Members.EACH if single else Members.ONE_OF,
        anomaly=Anomaly.FAIL_SLOW,
        resource=Resource(peer_ranks=tuple(sorted({rank for link in blame.links for rank in link} - set(blame.ranks)))),
        mechanism=Mechanism("late_start", "local" if single else "unknown"),
        impact=Impact(round(first.lost_ns), round(first.share, 3), None, "arrival"),
        next_steps=_next_steps(blame.ranks),
    )


def _of_host(slowness: Slowness, host: StarvedHost) -> Finding:
    """A host whose proxies offer buffers late, and see late that what they sent is there."""
    links = tuple((each.sender, each.receiver) for each in host.paused)
    finding = _finding(slowness, Blame(host.ranks, links, ()), host.paused, 0.0)
    seen = ", ".join(f"{each.sender} to {each.receiver}" for each in host.late[:_SHOWN])
    late = f"chunks from rank {seen} seem to stay at the NIC for long, and none do that are sent to the host: it sees them late"
    said = Evidence(f"all links that pause or are slow end at ranks of host {host.host}; {late}", host.late[0].source)
    return replace(finding, granularity=Granularity.HOST, evidence=(finding.evidence[0], said, *finding.evidence[1:]))


def _evidence(found: Sequence[Pauses]) -> Iterator[Evidence]:
    for each in found[:_SHOWN]:
        what = "messages" if each.kind == "p2p" else each.kind
        yield Evidence(
            f"rank {each.sender} to rank {each.receiver}, {what} of {each.communicator}: in {each.paused} of {each.operations} "
            f"operations chunks were ready and buffers offered, and nothing was handed to the NIC for "
            f"{each.typical_ns / 1e6:.1f} ms, {100 * each.share:.0f} % of the time",
            each.source,
        )
    if len({(each.sender, each.receiver) for each in found}) == 1:
        yield Evidence(
            "a credit that the sender's proxy did not see is indistinguishable from one that came late", None, supports=False
        )


def _clears(seen: Seen, logs: ChunkLogs, slowness: Slowness) -> str | None:
    """Pauses are seen where both ends tell of enough operations; what did pause, if too little for a case, is not ruled out.

    A proxy that comes late to an arrival or to a chunk of its GPU leaves none waiting: only the time between polls shows it.
    """
    often = all(max(channel.flows for channel in each) >= _LEAST_SEEN for each in slowness.channels.values())
    paused = any(each.paused for each in slowness.pauses.values())
    blind = slowness.unpolled or slowness.longest_gap_ns >= LEAST_PAUSE_NS
    if paused or blind or not slowness.channels or not often or not seen.all_in(logs):
        return None
    links = counted(len(slowness.channels), "link")
    return f"on {links} between ranks chunks that are ready and have credit are handed over at once"


RULE = Rule(
    code="FX173",
    name="proxy-paused",
    seed="Mycroft section 7.1 (NCCL delay) and Table 4 (not transmitted)",
    needs=(Need(ChunkLogs, "chunks", "only NCCL's profiler interface shows when chunks are handed over"),),
    thresholds=(
        Threshold("least_pauses", 2, "operations that paused; one is an accident"),
        Threshold("likely_pauses", 3, "operations that paused, over all its links; fewer are a suspicion only"),
        Threshold("least_share", 0.05, "of the time: shorter pauses are those of a busy host"),
        Threshold("least_share_of_few", 0.1, "of the time, where fewer operations paused than make it likely"),
    ),
    concludes="The rank whose proxy thread pauses, or the two ends of the link where it does.",
    evaluate=_evaluate,
    clears=_clears,
)
