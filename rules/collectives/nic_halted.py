"""Nothing moves any more on any NIC, and that of a rank stopped before those beside it did."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from forensics.model import (
    Belief,
    Cause,
    Component,
    Confidence,
    Evidence,
    Finding,
    Granularity,
    Mechanism,
    Members,
    Resource,
    Since,
    StageRef,
)
from forensics.rules.interface import Need, Rule, Undecided
from forensics.rules.reductions.epochs.captures import NicCaptures
from forensics.rules.reductions.epochs.halted_exchanges import HaltedExchange, UnfinishedMessages
from forensics.rules.reductions.epochs.halted_links import HaltedLink, HaltedLinks, halted_ends
from forensics.rules.reductions.epochs.mirrors import MirroredPeers
from forensics.rules.reductions.epochs.operators import NicOperators
from forensics.rules.reductions.epochs.standstill import NicSilence
from forensics.rules.reductions.epochs.tails import StoppedRank, StoppedRanks, Tail
from forensics.rules.reductions.hardware.ports_down import PortsDown
from forensics.rules.reductions.ranks.nic_users import CapturedUsers
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.text.evidence_text import counted, ranks_text
from forensics.rules.reductions.waits.graph import WaitGraph

_SHOWN = 3
_EITHER = Evidence("epochs cannot distinguish a NIC that is down from a rank that did not make its call", None, supports=False)


def _evaluate(
    roster: Roster,
    graph: WaitGraph,
    halted: HaltedLinks,
    exchange: HaltedExchange,
    stopped: StoppedRanks,
    silence: NicSilence,
    users: CapturedUsers,
    mirrored: MirroredPeers,
    down: PortsDown,
) -> Iterator[Finding]:
    if roster.ranks and all(facts.dead for facts in roster.ranks.values()):
        return
    for finding in _halted(roster, graph, halted, exchange, stopped, silence, users):
        yield _with_port(mirrored.doubted(finding), down)


def _with_port(finding: Finding, down: PortsDown) -> Finding:
    """The finding on the one NIC among those it may be whose port reads as down: that settles what traffic leaves open."""
    ranks = tuple(rank for rank in finding.ranks if rank in down)
    nics = {down[rank].nic for rank in ranks}
    if len(nics) != 1 or (finding.members is Members.EACH and len(ranks) < len(finding.ranks)):
        return finding
    peers = set(finding.resource.peer_ranks if finding.resource else ()) | ({*finding.ranks} - {*ranks})
    return replace(
        finding,
        ranks=ranks,
        cause=Cause.NETWORK_DOWN,
        stage=StageRef(component=Component.COMMUNICATION),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY,
        evidence=(down[ranks[0]].evidence, *(each for each in finding.evidence if each is not _EITHER)),
        granularity=Granularity.NIC,
        members=Members.EACH,
        resource=Resource(nic=nics.pop(), peer_ranks=tuple(sorted(peers))),
        mechanism=Mechanism("not_delivered", "local"),
        next_steps=(f"check port state, cable and error counters of the NICs of {ranks_text(ranks)}",),
    )


def _halted(
    roster: Roster,
    graph: WaitGraph,
    halted: HaltedLinks,
    exchange: HaltedExchange,
    stopped: StoppedRanks,
    silence: NicSilence,
    users: CapturedUsers,
) -> Iterator[Finding]:
    """What captures tell alone."""
    found = list(halted_ends(halted, users))
    for ranks, links in found:
        is_one = len({users.first(rank) for rank in ranks}) == 1
        if _agrees(graph, ranks, is_one):
            yield _finding(roster, ranks, links, silence, is_one)
    # What rails tell is nearer to the first halt: an exchange may only wait for it.
    if not halted and exchange and _agrees(graph, exchange.ranks, len(exchange.ranks) == 1):
        yield _of_exchange(roster, exchange, silence)
    if not halted and not exchange and _are_together(roster, stopped, users):
        each_own = [each.rank for each in stopped]
        if _agrees(graph, each_own, len(each_own) == 1):
            yield _of_tails(roster, stopped, silence)


def _are_together(roster: Roster, stopped: Sequence[StoppedRank], users: CapturedUsers) -> bool:
    """Whether it is one rank, or several of one host, each with a NIC of its own."""
    hosts = {roster.host_of(each.rank) for each in stopped}
    nics = {users.first(each.rank) for each in stopped}
    return len(stopped) == 1 or (len(hosts) == 1 and None not in hosts and len(nics) == len(stopped))


def _of_tails(roster: Roster, stopped: Sequence[StoppedRank], silence: NicSilence) -> Finding:
    """Of several ranks of one host each with a ring or exchange of its own, one may have held up the others."""
    ranks, first = tuple(each.rank for each in stopped), stopped[0]
    last = max(first.links, key=lambda tail: tail.since_ns)
    peers = {end for each in stopped for tail in each.links for end in tail.ends} - {*ranks}
    return replace(
        _of_either(ranks, _tails(stopped, silence), peers, Granularity.GROUP),
        mechanism=Mechanism("not_started" if first.did_not_begin else "not_delivered", _side(ranks)),
        since=_moment(roster, last.shown_by, last.since_ns, last.clock),
    )


def _of_either(ranks: tuple[int, ...], evidence: Iterable[Evidence], peers: Collection[int], several: Granularity) -> Finding:
    """A rank that stopped before its call, or its NIC; one of `several` where they are more."""
    one = len(ranks) == 1
    return Finding(
        ranks=ranks,
        cause=Cause.UNKNOWN,
        stage=StageRef(),
        belief=Belief.BEHIND_AND_BUSY if one else Belief.GROUP_SYMPTOM,
        confidence=Confidence.SUSPECT,
        evidence=tuple(evidence),
        granularity=Granularity.RANK if one else several,
        members=Members.EACH if one else Members.ONE_OF,
        resource=Resource(peer_ranks=tuple(sorted(peers))),
        next_steps=_next_steps(ranks),
    )


def _side(ranks: tuple[int, ...]) -> str:
    """At which end it was not delivered: known of one rank only."""
    return "local" if len(ranks) == 1 else "unknown"


def _moment(roster: Roster, rank: int, time_ns: int, clock: str | None) -> Since | None:
    """A time of the capture of a rank, where it is one of the clock of a known host."""
    host = roster.host_of(rank)
    return Since(time_ns, f"{host} realtime", 0) if host and clock == "realtime" else None


def _tails(stopped: Sequence[StoppedRank], silence: NicSilence) -> Iterator[Evidence]:
    yield Evidence(silence.reason, silence.source)
    for each in stopped[:_SHOWN]:
        begun = each.others if each.did_not_begin else each.links
        stated = each.links if each.did_not_begin else each.others
        last = min(begun, key=lambda tail: tail.moved)
        ways = f"{counted(len(stated), 'link')} {'of' if each.did_not_begin else 'without'} rank {each.rank}"
        yield Evidence(
            f"rank {last.sender} to rank {last.receiver} moved {last.moved / 1e6:.1f} MB of its last operator, of "
            f"{last.expected / 1e6:.1f} MB {_by(last)}; {ways} ended with a whole one",
            last.source,
        )
    yield _EITHER


def _by(tail: Tail) -> str:
    return "that its messages have" if tail.by_calls else "in each one before"


def _of_exchange(roster: Roster, exchange: HaltedExchange, silence: NicSilence) -> Finding:
    """A rank that stopped before a message, or its NIC on the way: where the calls are not known, one looks like the other."""
    ranks, first = exchange.ranks, min(exchange.stated, key=lambda each: each.rank)
    peers = {each.rank for each in exchange.stated} - {*ranks}
    return replace(
        _of_either(ranks, _stated(exchange, silence), peers or ranks, Granularity.LINK),
        mechanism=Mechanism("not_delivered", _side(ranks)),
        since=_moment(roster, first.rank, first.since_ns, first.clock),
    )


def _stated(exchange: HaltedExchange, silence: NicSilence) -> Iterator[Evidence]:
    yield Evidence(silence.reason, silence.source)
    yield from map(_stopped, exchange.stated[:_SHOWN])
    yield Evidence(f"messages between {counted(exchange.complete, 'other pair')} of ranks went on")
    yield _EITHER


def _stopped(each: UnfinishedMessages) -> Evidence:
    return Evidence(
        f"messages between rank {each.rank} and rank {each.peer} stopped {each.stopped_ns / 1e6:.0f} ms before those of the "
        f"same NIC with {counted(each.others, 'other rank')}, which moved {each.beyond / 1e6:.0f} MB more, and as much before",
        each.source,
    )


def _agrees(graph: WaitGraph, ranks: Sequence[int], is_one: bool) -> bool:
    """Whether calls leave it open who of those inside an operation is the first, and this names one; or there are no calls."""
    absent = {rank for wait in graph.waits for rank in wait.missing if rank not in graph.waits_for}
    return not graph.waits or (not absent and is_one and set(ranks) <= graph.waits_for.keys())


def _finding(roster: Roster, ranks: tuple[int, ...], links: Sequence[HaltedLink], silence: NicSilence, is_one: bool) -> Finding:
    """Of ranks that have a NIC together one may have held up the others where nothing had begun."""
    named = len(ranks) == 1 or (is_one and any(link.begun for link in links))
    nics = {link.nic for link in links if is_one and link.shown_by in ranks}
    others = sorted({rank for link in links for rank in link.ends} - set(ranks)) or list(ranks)
    on_its_way = any(link.begun for link in links)
    return Finding(
        ranks=ranks,
        cause=Cause.NETWORK_DOWN if on_its_way else Cause.UNKNOWN,
        stage=StageRef(component=Component.COMMUNICATION if on_its_way else Component.UNKNOWN),
        belief=Belief.BEHIND_AND_BUSY if named else Belief.GROUP_SYMPTOM,
        confidence=Confidence.SUSPECT,
        evidence=tuple(_evidence(links, silence, on_its_way)),
        granularity=_granularity(named, is_one, on_its_way),
        members=Members.EACH if named else Members.ONE_OF,
        resource=Resource(nic=nics.pop() if len(nics) == 1 else None, peer_ranks=tuple(others)),
        mechanism=Mechanism("not_delivered", "local" if named else "unknown"),
        since=_since(roster, ranks, links),
        next_steps=_next_steps(ranks),
    )


def _next_steps(ranks: Sequence[int]) -> tuple[str, ...]:
    return (
        f"check port state, cable and error counters of the NICs of {ranks_text(ranks)}",
        f"check the processes and GPUs of {ranks_text(ranks)}: one that stopped before its call leaves the same traffic",
    )


def _granularity(named: bool, is_one: bool, on_its_way: bool) -> Granularity:
    if named:
        return Granularity.NIC if on_its_way else Granularity.RANK
    return Granularity.GROUP if is_one else Granularity.LINK


def _evidence(links: Sequence[HaltedLink], silence: NicSilence, on_its_way: bool) -> Iterator[Evidence]:
    yield Evidence(silence.reason, silence.source)
    for link in links[:_SHOWN]:
        moved = f"moved {link.moved / 1e6:.1f} MB of its last operator" if link.begun else "did not begin the last operator"
        beside = f"{counted(link.others, 'link')} between the same hosts moved {link.expected / 1e6:.1f} MB"
        yield Evidence(f"rank {link.sender} to rank {link.receiver} {moved}; {beside}", link.source)
    if not on_its_way:
        yield _EITHER


def _since(roster: Roster, ranks: Sequence[int], links: Sequence[HaltedLink]) -> Since | None:
    """The last time at which one of the links moved anything, by the clock of a named rank where one tells."""
    own = [link for link in links if link.shown_by in ranks] or links
    last = max(own, key=lambda link: (link.since_ns, link.ends))
    return _moment(roster, last.shown_by, last.since_ns, last.clock)


def _clears(
    moved: NicOperators, silence: NicSilence, halted: HaltedLinks, exchange: HaltedExchange, stopped: StoppedRanks
) -> str | None:
    if halted or exchange or stopped or not moved:
        return None
    if silence:
        return Undecided("all links between two hosts stopped with the same operator, or none is beside another")
    if not all(nic.capture.whole for nic in moved):
        return Undecided("a capture lost epochs: what it does not show may have happened")
    return Undecided("NICs moved data up to the end of the captures, or their silence is as long as pauses before")


RULE = Rule(
    code="FX181",
    name="nic-halted",
    seed="Pulse section 6.2 (communication and computation fail-stop)",
    needs=(Need(NicCaptures, "NIC epochs", "only captures show where traffic stopped first"),),
    concludes="The rank whose NIC, or the link that, stopped before those beside it in a job of which no NIC moves anything.",
    evaluate=_evaluate,
    clears=_clears,
)
