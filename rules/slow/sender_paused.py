"""Rings wait for one rank or host: it stops to send before it stops to receive, or both its links begin last."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from forensics.model import (
    Anomaly,
    Belief,
    Cause,
    Component,
    Confidence,
    Evidence,
    Finding,
    Granularity,
    Impact,
    Mechanism,
    Members,
    Resource,
    StageRef,
)
from forensics.rules.interface import Need, Rule, Threshold, Thresholds, Undecided
from forensics.rules.reductions.epochs.captures import NicCaptures
from forensics.rules.reductions.epochs.late_starts import LateStart, LateStarts
from forensics.rules.reductions.epochs.links import LinkRates
from forensics.rules.reductions.epochs.mirrors import MirroredPeers
from forensics.rules.reductions.epochs.paused_rings import PausedRank, PausedRings
from forensics.rules.reductions.epochs.volumes import LinkCalls
from forensics.rules.reductions.hardware.cores import BusyHosts, TakenCores
from forensics.rules.reductions.network.late_by_load import LEAST_LOAD, of_load
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.ranks.nic_users import CapturedUsers
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.text.blocked_ranks import blocked_ranks
from forensics.rules.reductions.text.evidence_text import counted, ranks_text

_SHOWN = 3
# Rings through a host, each over a NIC of its own: links to different hosts or rails do not pause together by themselves.
_SEVERAL = 2
# Of the rings that name a host: so many others may say something else, or nothing.
_MAY_DIFFER = 0.25


def _evaluate(
    roster: Roster, liveness: Liveness, paused: PausedRings, starts: LateStarts, rates: LinkRates, busy: BusyHosts,
    users: CapturedUsers, calls: LinkCalls, mirrored: MirroredPeers, thresholds: Thresholds,
) -> Iterator[Finding]:  # fmt: skip
    if liveness.motion is Motion.STALLED:
        return
    hosts = {capture.rank: roster.host_of(capture.rank) or capture.host for capture in rates.captures}
    late = [each for each in starts if each.share >= thresholds["least_late"]]
    # Records of calls tell more of who is late, and for whom.
    if late and not any(facts.has_recorder for facts in roster.ranks.values()):
        yield mirrored.doubted(_by_load(_begun_late(late, hosts, users, busy), late))
        yield blocked_ranks(sorted(set(users.of(rank for each in late for rank in each.members)) - _of_late(late, users)))
    by_host: dict[str | None, list[PausedRank]] = defaultdict(list)
    for each in paused.begun:
        by_host[hosts.get(each.rank)].append(each)
    for host, found in by_host.items():
        stated = [each for each in found if each.share >= thresholds["least_cost"]]
        if host and stated and _is_of_host(host, found, paused, hosts):
            is_host = len(found) >= _SEVERAL
            unseen = set(roster.ranks) - set(users.of(hosts))
            unseen = {rank for rank in unseen if roster.host_of(rank) == host}  # ranks that no NIC is captured of
            beside = {*_unclear(host, paused, hosts), *(each.rank for each in found), *unseen} if is_host else set[int]()
            yield mirrored.doubted(_finding(stated, users, calls, busy.get(host), is_host=is_host, beside=beside))
            reached = {rank for each in stated for rank in each.ring}
            yield blocked_ranks(sorted(set(users.of(reached)) - set(users.of([*beside, *(each.rank for each in found)]))))


def _of_late(late: Sequence[LateStart], users: CapturedUsers) -> set[int]:
    return set(users.of(each.rank for each in late))


def _begun_late(
    late: Sequence[LateStart], hosts: Mapping[int, str | None], users: CapturedUsers, busy: BusyHosts
) -> Finding:  # fmt: skip
    """The ranks of one host; of several hosts one may be what the others wait for, in groups that captures do not show."""
    ranks, worst = tuple(sorted(_of_late(late, users))), max(late, key=lambda each: (each.share, -each.rank))
    (host, *others) = sorted({hosts.get(each.rank) for each in late}, key=str)
    named = not others and (host is not None or len(ranks) == 1)
    taken = busy.get(host) if named and host else None
    is_host = named and len(ranks) >= _SEVERAL
    return Finding(
        ranks=ranks,
        cause=Cause.CPU_CONTENTION if taken else Cause.UNKNOWN,
        stage=StageRef(component=Component.HOST if taken else Component.UNKNOWN),
        belief=Belief.BEHIND_AND_BUSY if named else Belief.GROUP_SYMPTOM,
        confidence=Confidence.SUSPECT,
        evidence=tuple(_evidence_of_begins(late, taken)),
        granularity=Granularity.HOST if is_host else Granularity.of_ranks(ranks) if named else Granularity.GROUP,
        members=Members.EACH if named else Members.ONE_OF,
        anomaly=Anomaly.FAIL_SLOW,
        resource=Resource(peer_ranks=tuple(sorted(set(users.of(r for each in late for r in each.members)) - set(ranks)))),
        mechanism=Mechanism("late_start", "local" if named else "unknown"),
        impact=Impact(None, round(worst.share, 3), None, "arrival"),
        next_steps=(
            f"stacks of {ranks_text(ranks)}, several times a minute: what they do while the others have begun",
            f"check clocks, temperature and power of the GPUs of {ranks_text(ranks)}, and what else runs on the host",
        ),
    )


def _by_load(finding: Finding, late: Sequence[LateStart]) -> Finding:
    """Tokens and not the node, where more of the exchanges falls on each late rank."""
    least = min(late, key=lambda each: (each.load, each.rank))
    return of_load(finding, least.rank, least.load, "exchange", least.source) if least.load >= LEAST_LOAD else finding


def _evidence_of_begins(late: Sequence[LateStart], taken: TakenCores | None) -> Iterator[Evidence]:
    for each in sorted(late, key=lambda each: (-each.share, each.rank))[:_SHOWN]:
        yield Evidence(
            f"all links of rank {each.rank} begin last among {len(each.members)} NICs, {each.times} times, by "
            f"{each.typical_ns / 1e6:.1f} ms (median) of the clocks of {ranks_text(each.shown_by)}, whose other links begin "
            f"together; {100 * each.share:.0f} % of the time",
            each.source,
        )
    if len(late) >= _SEVERAL:
        yield Evidence(f"so it is in {counted(len(late), 'ring')} over different NICs")
    if taken is not None:
        yield Evidence(taken.statement, taken.source)
    why = "it may wait itself, for ranks in its host or for messages of a pipeline: captures do not tell its work"
    yield Evidence(why, None, supports=False)


def _is_of_host(host: str, found: Sequence[PausedRank], paused: PausedRings, hosts: Mapping[int, str | None]) -> bool:
    """Whether no ring through this host that pauses says otherwise."""
    others = [ring for ring in paused.open if any(hosts.get(rank) == host for rank in ring)]
    elsewhere = [each for each in paused.begun if each not in found and any(hosts.get(rank) == host for rank in each.ring)]
    return len(others) + len(elsewhere) <= _MAY_DIFFER * len(found)


def _unclear(host: str, paused: PausedRings, hosts: Mapping[int, str | None]) -> Iterator[int]:
    """Ranks of a host whose rings pause as well, and do not tell who stops first."""
    return (rank for ring in paused.open for rank in ring if hosts.get(rank) == host)


def _finding(
    found: Sequence[PausedRank],
    users: CapturedUsers,
    calls: LinkCalls,
    taken: TakenCores | None,
    *,
    is_host: bool,
    beside: Collection[int],
) -> Finding:
    """All NICs of a host together, or a rank whose host is short of cores; else the rank, or its link to the next one.

    With a host its ranks `beside` are named whose rings pause as well.
    """
    named, worst = is_host or taken is not None, max(found, key=lambda each: (each.share, -each.rank))
    ends = [rank for each in found for rank in ((each.rank,) if named else (each.rank, each.successor))]
    ranks, links = users.of([*ends, *beside]), [(each.rank, each.successor) for each in found]
    component = Component.HOST if taken else Component.UNKNOWN
    return Finding(
        ranks=ranks,
        cause=Cause.CPU_CONTENTION if taken else Cause.UNKNOWN,
        stage=replace(calls.stage(links), component=component),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY if taken and is_host else Confidence.SUSPECT,
        evidence=(*_evidence(found, users, taken, named), *calls.evidence(links)),
        granularity=Granularity.HOST if is_host else Granularity.of_ranks(ranks) if named else Granularity.LINK,
        members=Members.EACH if named else Members.ONE_OF,
        anomaly=Anomaly.FAIL_SLOW,
        resource=Resource(peer_ranks=tuple(sorted({rank for each in found for rank in users.of(each.ring)} - set(ranks)))),
        mechanism=Mechanism("late_end", "local" if named else "unknown"),
        impact=Impact(None, round(worst.share, 3), None, "arrival"),
        next_steps=(
            f"check what runs on the cores of the host of {ranks_text(ranks)}, its CPU limits, and where proxy threads run",
            f"check clocks and other work on the GPUs of {ranks_text(ranks)}: a kernel that stops leaves the same traffic",
        ),
    )


def _evidence(
    found: Sequence[PausedRank], users: CapturedUsers, taken: TakenCores | None, named: bool
) -> Iterator[Evidence]:  # fmt: skip
    for each in sorted(found, key=lambda each: (-each.share, each.rank))[:_SHOWN]:
        sender, receiver = (ranks_text(users.of([rank])) for rank in (each.rank, each.successor))
        yield Evidence(
            f"{sender} to {receiver}: in {each.leads} of {each.pauses} pauses of a ring of {len(each.ring)} NICs its sends "
            f"stop first, {each.lead_ns / 1e6:.1f} ms before it stops to receive, for {each.typical_ns / 1e6:.1f} ms; "
            f"on the others receiving stops first; {100 * each.share:.0f} % of the time",
            each.source,
        )
    if len(found) >= _SEVERAL:
        yield Evidence(f"so it is in {counted(len(found), 'ring')} over different NICs of this host")
    if taken is not None:
        yield Evidence(taken.statement, taken.source)
    elif named:
        yield Evidence("captures do not show whether proxy threads or GPUs stop", None, supports=False)
    else:
        yield Evidence("the path from one to the next may stop as well", None, supports=False)


def _clears(roster: Roster, paused: PausedRings, starts: LateStarts, users: CapturedUsers) -> str | None:
    if not paused.rings:
        return None
    if starts:
        return Undecided("operators of rings begin without one rank, and calls tell more of it, or it costs too little")
    if paused.begun or paused.open:
        return Undecided("rings pause within operators, and who stops first is unknown, or it costs too little")
    seen = set(users.of(rank for ring in paused.rings for rank in ring))
    return (
        f"{counted(len(paused.rings), 'ring')} of NICs begin together and do not pause within operators"
        if set(roster.ranks) <= seen
        else None
    )


RULE = Rule(
    code="FX183",
    name="sender-paused",
    seed="Pulse sections 6.2 and 7.2.2 (CPU contention: long duration at a normal actual communication time)",
    needs=(Need(NicCaptures, "NIC epochs", "only captures show which NIC stops first"),),
    thresholds=(
        Threshold("least_cost", 0.04, "of the time, in pauses: fewer are those of a busy host"),
        Threshold("least_late", 0.05, "of the time, in which the others have begun: less is usual between hosts"),
    ),
    concludes="The host, or the two ends of the link, whose sends stop first when rings pause, or whose links begin last.",
    evaluate=_evaluate,
    clears=_clears,
)
