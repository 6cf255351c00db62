"""The NIC of a rank, or those of a host, move less in an epoch than NICs that carry as much, and the job loses time to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import networkx as nx

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
from forensics.rules.interface import Need, Rule, Threshold, Thresholds, Undecided
from forensics.rules.reductions.epochs.captures import NicCaptures
from forensics.rules.reductions.epochs.gaps import gap_ns, hides
from forensics.rules.reductions.epochs.judged import LEAST_LOSS, JudgedLink
from forensics.rules.reductions.epochs.links import LATEST, LinkRates
from forensics.rules.reductions.epochs.mirrors import MirroredPeers
from forensics.rules.reductions.epochs.passed_on import not_passed_on
from forensics.rules.reductions.epochs.slow_hosts import SlowHost, slow_hosts
from forensics.rules.reductions.epochs.slow_links import JudgedLinks, SlowEnd, slow_ends
from forensics.rules.reductions.epochs.volumes import LinkCalls
from forensics.rules.reductions.hardware.causes import Hardware
from forensics.rules.reductions.network.crowded_hosts import CrowdedHosts, finding_of_crowded
from forensics.rules.reductions.network.cuts import Cut, cuts
from forensics.rules.reductions.network.epoch_rails import in_rails, on_rail, united
from forensics.rules.reductions.network.slow_rails import places_of_nics
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.ranks.nic_users import CapturedUsers
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.text.blocked_ranks import blocked_ranks
from forensics.rules.reductions.text.evidence_text import counted, ranks_text

Hosts = Mapping[int, str | None]
"""The host of each rank whose NIC was captured."""

_SHOWN = 3
# Operators of which the rate of a link is the median before it is more than a suspicion. Of fewer than so many, one that the
# end of the job cut may be the median; of more faults at once, on most NICs, one elsewhere is nearer.
_SEVERAL, _OPERATORS, _MOST_ENDS = 2, 5, 4


def _evaluate(
    roster: Roster,
    liveness: Liveness,
    rates: LinkRates,
    judged: JudgedLinks,
    users: CapturedUsers,
    hardware: Hardware,
    calls: LinkCalls,
    mirrored: MirroredPeers,
    crowded: CrowdedHosts,
    thresholds: Thresholds,
) -> Iterator[Finding]:
    if liveness.motion is Motion.STALLED:
        yield from _before_stop(judged, rates, users, calls, hardware, thresholds)
        return
    if crowded and max(link.cost for link in judged if link.is_slow) >= thresholds["least_cost"]:
        slow = [link for link in judged if link.is_slow]
        most = _impact(max(slow, key=lambda link: (link.cost, link.ends)))
        yield mirrored.doubted(finding_of_crowded(crowded, _rates(slow, users), hardware, most))
        yield blocked_ranks({rank for rank in roster.ranks if all(rank not in each.ranks for each in crowded)})
        return
    least = {True: thresholds["least_cost_open"], False: thresholds["least_cost"]}
    captures = {capture.rank: capture for capture in rates.captures}
    hosts = {rank: roster.host_of(rank) or captures[rank].host for rank in captures}
    found_cuts = _cuts(judged, hosts)
    for cut, links in found_cuts:
        worst = max(links, key=lambda link: (link.cost, link.ends))
        if worst.cost >= least[True]:
            found = cut.finding(calls.stage([link.ends for link in links]), _impact(worst), _rates(links, users))
            yield mirrored.doubted(found)
    apart = JudgedLinks(tuple(link for link in judged if all(_is_apart(link, cut) for cut, _ in found_cuts)))
    whole = {_of_host(each): each for each in slow_hosts(apart, hosts)} if not rates.shared else {}
    of_hosts = {rank for end in whole for rank in end.ranks}
    single = slow_ends(link for link in apart if of_hosts.isdisjoint(link.ends))
    ends = [*whole, *not_passed_on(single, calls)]
    place_of = places_of_nics(roster, users)
    seen = [end for end in ends if not _is_hidden(end, rates)]
    railed = in_rails([on_rail(end, apart, place_of) for end in seen], apart, place_of)
    ends = [*railed, *(end for end in ends if end not in seen)]
    ends = [end for end in ends if _worst(end).cost >= least[end.is_open and not _worst(end).is_lossy]]
    if len(ends) > _MOST_ENDS and 2 * len({rank for end in ends for rank in end.ranks}) > len(hosts):
        return  # a NIC that is slow stands out: where most are, what they wait for is not theirs
    for end in _by_host(ends, judged, hosts):
        found = _with_host(_finding(end, rates, users, calls, thresholds["likely_loss"]), whole.get(end))
        refined = hardware.refined(found, (Cause.NETWORK_SLOW,), 1 / _worst(end).part)
        yield mirrored.doubted(_narrowed(refined, end, judged, hosts))
        if victims := _held_up(end, judged) - set(end.ranks):
            yield blocked_ranks(users.of(victims))


def _before_stop(
    judged: JudgedLinks, rates: LinkRates, users: CapturedUsers, calls: LinkCalls, hardware: Hardware, thresholds: Thresholds
) -> Iterator[Finding]:
    """NICs that were slow before the job stopped: plainly, with several others, and over operators enough that none was cut."""
    for end in slow_ends(judged):
        sure = len(end.ranks) == 1 and not end.is_open and len(end.links) >= _SEVERAL and not _is_hidden(end, rates)
        worst = _worst(end)
        plain = worst.part <= thresholds["most_before_stop"] and worst.link.operators >= _OPERATORS
        if sure and plain and worst.cost >= thresholds["least_cost"]:
            found = hardware.refined(_finding(end, rates, users, calls, thresholds["likely_loss"]), (Cause.NETWORK_SLOW,))
            yield replace(found, of_past=True, confidence=Confidence.SUSPECT)


def _is_hidden(end: SlowEnd, rates: LinkRates) -> bool:
    """Whether epochs are too long to tell the slow NIC of a ring from those that wait for it."""
    return hides(rates.epoch_ns, max(link.usual for link in end.links), 1 / min(link.part for link in end.links))


def _cuts(judged: JudgedLinks, hosts: Hosts) -> list[tuple[Cut, list[JudgedLink]]]:
    slow = {link.ends: link for link in judged if link.is_slow}
    sound = [link.ends for link in judged if not link.is_slow]
    lost = {ends: _lost(link) for ends, link in slow.items()}
    return [(cut, [slow[ends] for ends in cut.links]) for cut in cuts(lost, sound, hosts.get)]


def _is_apart(link: JudgedLink, cut: Cut) -> bool:
    """Whether a link is no part of the cut, and does not wait for it either."""
    return link.ends not in cut.links and (not link.is_slow or _lost(link) >= cut.least)


def _lost(link: JudgedLink) -> float:
    return 1 / link.part - 1


def _of_host(each: SlowHost) -> SlowEnd:
    return SlowEnd(each.ranks, each.links, both=True, is_host=True)


def _with_host(finding: Finding, host: SlowHost | None) -> Finding:
    if host is None:
        return finding
    of_best = f"{100 * host.part:.0f} % of the best rate of its ring or exchange with its best peer (median)"
    said = f"{host.lacking} of {counted(len(host.ranks), 'NIC')} of {host.host} lack rate with every peer: {of_best}"
    return replace(finding, evidence=(Evidence(said, host.links[0].link.source), *finding.evidence))


def _held_up(end: SlowEnd, judged: JudgedLinks) -> set[int]:
    """Ranks that data reaches from these or the other way round: in rings and exchanges nobody is done before the others."""
    reached = nx.node_connected_component(nx.Graph([link.ends for link in judged]), end.ranks[0])
    return {int(rank) for rank in reached}


def _worst(end: SlowEnd) -> JudgedLink:
    return max(end.links, key=lambda link: (link.cost, link.ends))


def _by_host(ends: Sequence[SlowEnd], judged: JudgedLinks, hosts: Hosts) -> list[SlowEnd]:
    """NICs of a host together where all of it that have links are slow, and there are several."""
    seen: dict[str, set[int]] = defaultdict(set)
    for rank in {rank for link in judged for rank in link.ends}:
        if host := hosts.get(rank):
            seen[host].add(rank)
    single = {end.ranks[0]: end for end in ends if len(end.ranks) == 1}
    whole = [sorted(ranks) for _, ranks in sorted(seen.items()) if len(ranks) > 1 and ranks <= single.keys()]
    together = [replace(united([single[rank] for rank in ranks]), is_host=True) for ranks in whole]
    named = {rank for ranks in whole for rank in ranks}
    return [*together, *(end for end in ends if named.isdisjoint(end.ranks))]


def _finding(end: SlowEnd, rates: LinkRates, users: CapturedUsers, calls: LinkCalls, likely: float) -> Finding:
    """What is slow about a NIC is so for all ranks that have it."""
    links = [link.ends for link in end.links]
    worst, is_open = _worst(end), end.is_open
    nics = {link.link.nic for link in end.links if end.ranks == (link.link.shown_by,)}
    others = sorted({rank for link in end.links for rank in link.ends} - set(end.ranks)) or list(end.ranks)
    return Finding(
        ranks=users.of(end.ranks),
        cause=Cause.NETWORK_SLOW,
        stage=calls.stage(links),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=_confidence(end, worst, likely),
        evidence=(*_evidence(end, rates, users), *calls.evidence(links)),
        granularity=_granularity(end),
        members=Members.ONE_OF if is_open else Members.EACH,
        anomaly=Anomaly.FAIL_SLOW,
        resource=Resource(nic=nics.pop() if len(nics) == 1 else None, peer_ranks=users.of(others)),
        mechanism=Mechanism("slow_flow", "unknown" if is_open or end.is_rail else "local"),
        impact=_impact(worst),
        next_steps=(
            f"check ports, cables, PCIe width and speed, and error counters of the NICs of {ranks_text(users.of(end.ranks))}",
            "run a point-to-point bandwidth test between the hosts on these NICs, and over another pair for comparison",
        ),
    )


def _impact(worst: JudgedLink) -> Impact:
    return Impact(round(worst.cost * worst.link.span_ns), round(worst.cost, 3), None, "arrival")


def _granularity(end: SlowEnd) -> Granularity:
    if end.is_host or end.is_rail:
        return Granularity.HOST if end.is_host else Granularity.LINK
    return {1: Granularity.NIC, 2: Granularity.LINK}.get(len(end.ranks), Granularity.GROUP)


def _confidence(end: SlowEnd, worst: JudgedLink, likely: float) -> Confidence:
    """Likely where several links, several operators and a plain loss say so."""
    sure = len(end.ranks) == 1 or end.is_host
    several = len(end.links) > 1 and (worst.link.operators >= _SEVERAL or len(end.links) > _SEVERAL)
    plain = worst.is_lossy or 1 - worst.part >= likely
    return Confidence.LIKELY if sure and several and plain else Confidence.SUSPECT


def _evidence(end: SlowEnd, rates: LinkRates, users: CapturedUsers) -> Iterator[Evidence]:
    yield from _rates(end.links, users)
    if end.is_rail:
        alike = f"NICs of {ranks_text(users.of(end.ranks))} have one number on their hosts, and no link of them is sound"
        yield Evidence(f"{alike}: what joins them, a rail or its switch, is nearer than as many faults")
    if end.is_open:
        yield Evidence("its links do not distinguish these NICs", None, supports=False)
    if len(end.ranks) == 1 and len(users.of(end.ranks)) > 1:
        yield Evidence(f"{ranks_text(users.of(end.ranks))} have this NIC together")
    if _is_hidden(end, rates):
        why = f"epochs of {rates.epoch_ns / 1e3:.0f} us are longer than the gaps that such a NIC leaves on the others"
        yield Evidence(why, None, supports=False)


def _rates(links: Sequence[JudgedLink], users: CapturedUsers) -> Iterator[Evidence]:
    for link in sorted(links, key=lambda link: (-link.cost, link.ends))[:_SHOWN]:
        sender, receiver = (ranks_text(users.of([rank])) for rank in link.ends)
        if link.is_lossy:
            lost = f"{100 - 100 * link.part:.1f} % of the bytes sent do not arrive and are sent again"
            yield Evidence(f"{sender} to {receiver}: {lost}, by the captures of both NICs", link.link.source)
            continue
        yield Evidence(
            f"{sender} to {receiver}: {link.link.rate / 1e9:.1f} GB/s {_stated(link)}, "
            f"{link.usual / 1e9:.1f} GB/s on {counted(link.peers, 'link')} that carry as much; "
            f"in its last {counted(min(link.link.operators, LATEST), 'operator')}, {100 * link.cost:.0f} % of the time",
            link.link.source,
        )


def _stated(link: JudgedLink) -> str:
    return "over all epochs with data, although not in its busiest ones" if link.is_mean else "in its busiest epochs"


def _narrowed(finding: Finding, end: SlowEnd, judged: JudgedLinks, hosts: Hosts) -> Finding:
    """NIC or PCIe, where one NIC is slow in both directions and its hardware shows no other cause."""
    if (
        finding.cause is not Cause.NETWORK_SLOW
        or len(end.ranks) > 1
        or not end.both
        or end.links[0].is_mean
        or end.links[0].is_lossy
    ):
        return finding
    host = hosts.get(end.ranks[0])
    sound = {rank for link in judged if not link.is_slow for rank in link.ends}
    beside = sorted(rank for rank in sound if rank != end.ranks[0] and hosts.get(rank) == host)
    what = f"sends and receives slowly, and {ranks_text(beside)} on the same host do not" if beside and host else ""
    said = (Evidence(f"rank {end.ranks[0]} {what}", end.links[0].link.source),) if what else ()
    return replace(finding, cause=Cause.NIC_OR_PCIE_SLOW, evidence=(*finding.evidence, *said))


def _clears(liveness: Liveness, rates: LinkRates, judged: JudgedLinks, users: CapturedUsers, roster: Roster) -> str | None:
    """Only where the NIC of every rank was compared, at epochs that would have shown half of the rate."""
    if not judged or liveness.motion is Motion.STALLED:
        return None
    usual = max(link.usual for link in judged)
    if hides(rates.epoch_ns, usual, 2.0):
        gap = f"gaps of {gap_ns(usual, 2.0) / 1e3:.0f} us that a NIC of half the rate leaves"
        return Undecided(f"epochs of {rates.epoch_ns / 1e3:.0f} us do not show {gap}")
    if any(link.link.arrived is None for link in judged):
        return Undecided("what is lost on the way and sent again is not seen: not all links are captured at both ends")
    seen = set(users.of(rank for link in judged for rank in link.ends))
    if any(link.is_slow for link in judged) or not set(roster.ranks) <= seen:
        return None
    return f"{counted(len(judged), 'link')} between ranks move as much in an epoch as others of the same use"


RULE = Rule(
    code="FX180",
    name="nic-slow",
    seed="Pulse sections 2.3, 6.1 and 6.2",
    needs=(Need(NicCaptures, "NIC epochs", "only captures of a NIC show what it moves in an epoch"),),
    thresholds=(
        Threshold("least_cost", 0.02, "of the time, longer than at the usual rate: less may cost nothing, hidden by overlap"),
        Threshold("least_cost_open", 0.05, "of the time, where it stays open which of several NICs it is"),
        Threshold(
            "most_before_stop", 0.5, "of the rate of others, in a job that stands still: what was cut then looks slow, too"
        ),
        Threshold("likely_loss", 0.25, f"of the rate; a smaller one, from {LEAST_LOSS:.0%} on, is a suspicion only"),
    ),
    concludes="The NIC that moves less in an epoch than others that carry as much, its host, or the two ends of a link.",
    evaluate=_evaluate,
    clears=_clears,
)
