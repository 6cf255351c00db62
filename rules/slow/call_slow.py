"""Messages or collectives of some ranks take several times as long as the same ones of others, once all members are there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from statistics import median

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
    StageRef,
)
from forensics.rules.interface import Need, Rule, Threshold, Thresholds, Undecided
from forensics.rules.reductions.epochs.slow_links import JudgedLinks
from forensics.rules.reductions.hardware.causes import Hardware, Oddity
from forensics.rules.reductions.hardware.cores import BusyHosts, shown_by_cores
from forensics.rules.reductions.network.call_paces import LEAST_FACTOR, LEAST_OTHERS, LEAST_SHARE, CallPace, CallPaces
from forensics.rules.reductions.network.joint_calls import TimedCalls
from forensics.rules.reductions.network.long_calls import LongCalls, is_held_by_gpu, statement
from forensics.rules.reductions.network.longer_calls import LongerCalls, LongerOfAll
from forensics.rules.reductions.network.slow_members import SlowMembers, slow_members
from forensics.rules.reductions.network.slowness import Slowness
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.ranks.nic_users import NicUsers
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.steps.times import StepTimes
from forensics.rules.reductions.text.blocked_ranks import blocked_ranks
from forensics.rules.reductions.text.evidence_text import counted, ranks_text

_SHOWN = 3
# Times as long as alike calls: less is no difference.
_AS_LONG = 1.25
_RIVALS = "a link that fails for as long, or a process that stands still, would leave the same evidence"


def _evaluate(
    paces: CallPaces,
    liveness: Liveness,
    slowness: Slowness,
    judged: JudgedLinks,
    users: NicUsers,
    hardware: Hardware,
    busy: BusyHosts,
    roster: Roster,
    long: LongCalls,
    times: StepTimes,
    longer: LongerOfAll,
    thresholds: Thresholds,
) -> Iterator[Finding]:
    if liveness.motion is Motion.STALLED:
        return
    # Where chunks or captures tell of links, they tell more.
    if longer and not (slowness.channels or judged) and longer[0].share >= thresholds["least_share_of_all"]:
        yield _of_all(longer, roster, tuple(_pointed(busy, hardware)))
    seen = {rank for link in slowness.slow_links() for rank in link}
    seen |= {rank for link in judged if link.is_slow for rank in link.ends}
    slow = slow_members(paces, thresholds["least_factor"], thresholds["least_share"])
    stated = {rank for each in slow if each.is_known for rank in each.ranks}
    share = min(1.0, long.lost_ns / max(float(times.length.sum()), 1.0))
    # What is slow all the time, as the network or other calls show, is now and then slower than usual, too.
    is_of_slow = long.link is not None and not long.lasting and not (seen | stated).isdisjoint(long.link)
    if long.ranks and share >= thresholds["least_share"] and not (is_of_slow or is_held_by_gpu(long, slowness.holds)):
        found = _since_then(long, share, hardware) if long.lasting else _now_and_then(long, share)
        yield shown_by_cores(found, busy, roster)
    for each in slow:
        ranks = _ends(each, stated, paces, users, roster)
        few = len(ranks) <= max(2, thresholds["most_part"] * len(roster.ranks)) or _is_one_group(each)
        if not few or (not each.is_known and seen.intersection(each.ranks)):
            continue  # what the network itself shows of such a link shows more
        found = hardware.refined(_finding(each, ranks), (Cause.NETWORK_SLOW,), max(call.factor for call in each.calls))
        found = hardware.on_one_link(found)
        if spared := sorted(set(users.of(each.ranks)) - set(ranks)):
            found = _beside_its_nic(found, spared)
        yield shown_by_cores(found, busy, roster)
        if victims := {rank for call in each.calls for rank in call.ranks} - set(found.ranks):
            yield blocked_ranks(users.of(victims))


def _is_one_group(each: SlowMembers) -> bool:
    """Whether all slow calls are collectives of one group, and several other groups are sound."""
    is_collective = all(call.kind != "send" and call.others >= LEAST_OTHERS for call in each.calls)
    return is_collective and len({call.communicator for call in each.calls}) == 1


def _now_and_then(long: LongCalls, share: float) -> Finding:
    """A rank, or one of two, of which some calls take far longer than others alike, and all other calls do not."""
    is_known = long.rank is not None
    return Finding(
        ranks=long.ranks,
        cause=Cause.PROXY_DELAY,
        stage=StageRef(component=Component.COMMUNICATION),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.SUSPECT,
        evidence=(Evidence(statement(long), long.found[0].source), Evidence(_RIVALS, supports=False)),
        granularity=Granularity.RANK if is_known else Granularity.LINK,
        members=Members.EACH if is_known else Members.ONE_OF,
        anomaly=Anomaly.FAIL_SLOW,
        mechanism=Mechanism("late_start", "local" if is_known else "unknown"),
        impact=Impact(round(long.lost_ns), round(share, 3), None, "arrival"),
        next_steps=(
            f"check the NCCL proxy threads of {ranks_text(long.ranks)}: are they scheduled, do they share a core",
            f"check ports and links of the NICs of {ranks_text(long.ranks)} for errors and retries at these times",
        ),
    )


def _since_then(long: LongCalls, share: float, hardware: Hardware) -> Finding:
    """The same, where all calls are long from one of them on: no thread sleeps now and then, the way itself became slow."""
    found = _now_and_then(long, share)
    said = (
        Evidence(f"all {len(long.found)} calls like them since the first of these are as long"),
        Evidence("a thread that drives transfers and has stood still since leaves the same evidence", supports=False),
    )
    mechanism = replace(found.mechanism or Mechanism("slow_flow", "unknown"), state="slow_flow")
    found = replace(found, cause=Cause.NETWORK_SLOW, mechanism=mechanism, evidence=(found.evidence[0], *said))
    slowdown = median(call.took_ns / max(call.usual_ns, 1.0) for call in long.found)
    return hardware.on_one_link(hardware.refined(found, (Cause.NETWORK_SLOW,), slowdown))


def _of_all(longer: Sequence[LongerCalls], roster: Roster, pointed: tuple[Evidence, ...]) -> Finding:
    """The whole job: what makes its collectives longer, calls do not show."""
    worst = longer[0]
    evidence = (
        Evidence(
            f"{worst.kind} of {ranks_text(worst.ranks)} in {worst.communicator} takes {worst.took_ns / 1e6:.1f} ms once all "
            f"members are there, {worst.before_ns / 1e6:.1f} ms before; {worst.calls} calls since",
            worst.source,
        ),
        *pointed,
        Evidence("one NIC, link or proxy makes all calls of such a group longer: which one is unknown", supports=False),
    )
    return Finding(
        ranks=(),
        cause=Cause.NETWORK_SLOW,
        stage=StageRef(component=Component.COMMUNICATION),
        belief=Belief.GROUP_SYMPTOM,
        confidence=Confidence.SUSPECT,
        evidence=evidence,
        granularity=Granularity.JOB,
        anomaly=Anomaly.FAIL_SLOW,
        mechanism=Mechanism("slow_flow", "unknown"),
        impact=Impact(round(worst.lost_ns), round(worst.share, 3), None, "arrival"),
        since=roster.since(worst.ranks[0], worst.since_ns),
        next_steps=(
            f"run a point-to-point bandwidth test over each NIC of {counted(len(set(roster.hosts.values())), 'host')}",
            "logs of the collector (libforensics_shim) or captures of NICs: they show which link is slow",
        ),
    )


def _pointed(busy: BusyHosts, hardware: Hardware) -> Iterator[Evidence]:
    """Hosts and GPUs that may be what holds up all: of so many ranks some show such a sign in sound jobs as well."""
    for _, taken in sorted(busy.items())[:_SHOWN]:
        yield Evidence(f"begin there: {taken.statement}", taken.source)
    narrow = [sign for _, signs in sorted(hardware.signs.items()) for sign in signs if sign.kind is Oddity.NARROW]
    for sign in narrow[:_SHOWN]:
        yield Evidence(f"begin there: {sign.statement}", sign.source)


def _ends(each: SlowMembers, stated: Set[int], paces: CallPaces, users: NicUsers, roster: Roster) -> tuple[int, ...]:
    """The ranks, and those on their NICs; one whose calls with other hosts are as fast as alike ones says that it is no NIC.

    Not one that is `stated` to be slow by other calls of its own: those that are fast may be too short to show it.
    """
    sound = {
        rank for call in paces.compared if call.factor < _AS_LONG and _leaves_its_host(call, roster) for rank in call.ranks
    }
    return tuple(sorted({*each.ranks, *users.of(each.ranks)} - (sound - stated - set(each.ranks))))


def _beside_its_nic(finding: Finding, spared: Sequence[int]) -> Finding:
    """A finding about ranks whose NIC serves others well: what is slow lies between them and it."""
    said = Evidence(f"calls of {ranks_text(spared)}, on the same NIC, are as fast as those of other ranks: it is not the NIC")
    cause = Cause.NIC_OR_PCIE_SLOW if finding.cause is Cause.NETWORK_SLOW else finding.cause
    single = Granularity.of_ranks(finding.ranks)
    # Its chunks come to the NIC, or leave it, late: the flow itself is not slow.
    ends = Mechanism("late_end", "local") if finding.members is Members.EACH else finding.mechanism
    return replace(finding, cause=cause, granularity=single, mechanism=ends, evidence=(*finding.evidence, said))


def _leaves_its_host(call: CallPace, roster: Roster) -> bool:
    return len({roster.host_of(rank) for rank in call.ranks}) > 1


def _finding(each: SlowMembers, ranks: tuple[int, ...]) -> Finding:
    worst = each.calls[0]
    lost = max(sum(call.share * call.span_ns for call in each.calls if rank in call.ranks) for rank in worst.ranks)
    return Finding(
        ranks=ranks,
        cause=Cause.NETWORK_SLOW,
        stage=StageRef(component=Component.COMMUNICATION),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.SUSPECT,
        evidence=tuple(_evidence(each)),
        granularity=_granularity(each),
        members=Members.EACH if each.is_known else Members.ONE_OF,
        anomaly=Anomaly.FAIL_SLOW,
        mechanism=Mechanism("slow_flow", "local" if each.is_known else "unknown"),
        impact=Impact(round(lost), round(each.share, 3), None, "arrival"),
        next_steps=(
            f"check ports, cables, PCIe width and error counters of the NICs of {ranks_text(ranks)}",
            "run a point-to-point bandwidth test between the hosts on these NICs, and over another pair for comparison",
        ),
    )


def _granularity(each: SlowMembers) -> Granularity:
    return Granularity.NIC if each.is_known else Granularity.LINK if len(each.ranks) == 2 else Granularity.GROUP


def _evidence(each: SlowMembers) -> Iterator[Evidence]:
    for call in each.calls[:_SHOWN]:
        there, within, use = ("both ends are", "on", "link") if call.kind == "send" else ("all members are", "in", "group")
        yield Evidence(
            f"{_what(call)} takes {call.took_ns / 1e6:.1f} ms once {there} there, {call.usual_ns / 1e6:.1f} ms {within} "
            f"{counted(call.others, use)} of other ranks",
            call.source,
        )
    yield Evidence(f"these ranks lose up to {100 * each.share:.0f} % of the time to such calls, unless other work hides it")
    if not each.is_known:
        yield Evidence("all of these calls have these ranks in common: which of them is slow is unknown", supports=False)


def _what(call: CallPace) -> str:
    if call.kind == "send":
        on = f" (with PXN over the NIC of {ranks_text(call.ranks[2:])})" if len(call.ranks) > 2 else ""
        return f"a message from rank {call.ranks[0]} to rank {call.ranks[1]}{on} in {call.communicator}"
    return f"{call.kind} of {ranks_text(call.ranks)} in {call.communicator}"


def _clears(paces: CallPaces, roster: Roster) -> str | None:
    """Only where calls of every rank with other hosts were compared."""
    seen = {rank for each in paces.compared for rank in each.ranks}
    if not seen or not set(roster.ranks) <= seen:
        return None
    if slow := paces.slow(_AS_LONG, 0.0):
        return Undecided(f"{_what(slow[0])} takes {slow[0].factor:.1f} times as long as alike ones")
    where = " with other hosts" if all(each.hosts > 1 for each in paces.compared) else ""
    return f"messages and collectives of {ranks_text(sorted(seen))}{where} take about as long as alike ones of other ranks"


RULE = Rule(
    code="FX178",
    name="call-slow",
    seed="Mycroft sections 4.3 and 7.1 (who comes last, interval of operations), VenusTrace section 3.2.2",
    needs=(Need(TimedCalls, "times inside calls", "only times inside calls of all members show how long a transfer takes"),),
    thresholds=(
        Threshold("least_factor", LEAST_FACTOR, "times as long as alike calls of others: sound ones differ by a few per cent"),
        Threshold("least_share", LEAST_SHARE, "of the time of a rank: less is hidden by other work"),
        Threshold("least_share_of_all", 0.1, "of the time since, where collectives of the whole job became longer"),
        Threshold("most_part", 0.125, "of the ranks of the job: naming more would say nothing"),
    ),
    concludes="The rank, or the members of a link or group, whose calls take several times as long as those of others.",
    evaluate=_evaluate,
    clears=_clears,
)
