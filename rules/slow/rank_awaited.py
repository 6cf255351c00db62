"""The operations of a moving job wait for one rank, which itself waits for nobody: not the network, but what it does before."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import networkx as nx

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
    StageName,
    StageRef,
)
from forensics.rules.interface import Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.arrivals.lateness import Latenesses, chance_of_last
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.hardware.accounted import LEAST_ACCOUNTED, unexplained
from forensics.rules.reductions.hardware.causes import Hardware
from forensics.rules.reductions.hardware.cpu import HostCpu, always_late, doubted, waits_for_cores
from forensics.rules.reductions.network.gpu_holds import LEAST_SHARE_HELD, GpuHold
from forensics.rules.reductions.network.late_by_load import LEAST_LOAD, by_load
from forensics.rules.reductions.network.slowness import Slowness
from forensics.rules.reductions.network.stragglers import Straggler
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.ranks.shim_logs import ChunkLogs
from forensics.rules.reductions.text import evidence_text
from forensics.rules.reductions.text.blocked_ranks import blocked_ranks
from forensics.rules.reductions.text.evidence_text import EvidenceText, counted
from forensics.rules.reductions.text.seen import Seen

_SHOWN = 3
# Calls in which a GPU took chunks late, of a rank that did not before.
_SURE_CALLS = 10
_OF_MASTER = "the first rank has work of its own (logging, saving), and it was as late from the begin of the record on"
# Late because its host was late or its GPU: where nothing else tells, the state of the GPU may.
_REFINED = (Cause.COMPUTE_SLOW, Cause.UNKNOWN)


def _evaluate(
    groups: Communicators, slowness: Slowness, hardware: Hardware, text: EvidenceText, cpu: HostCpu, roster: Roster,
    lateness: Latenesses, layout: Layout, thresholds: Thresholds,
) -> Iterator[Finding]:  # fmt: skip
    passing_on = _waits_for_an_equal(lateness, layout, thresholds)
    at_slow_links = {rank for link in slowness.slow_links() for rank in link}
    late: dict[int, Straggler] = {}
    for found in sorted(slowness.stragglers, key=lambda each: (each.lost_ns, each.communicator), reverse=True):
        alike = slowness.stages.alike(found.members)
        by_itself = found.own_share >= thresholds["least_own_share"] and not _is_seen_late(slowness, found)
        if alike and found.rank not in at_slow_links | passing_on and by_itself and _material(found, thresholds):
            late.setdefault(found.rank, found)
    victims = {rank for each in late.values() for rank in each.members} - set(late)
    for together in _in_step(groups, late):
        ranks, members, held = _narrowed([late[rank] for rank in together], thresholds)
        those = [late[rank] for rank in ranks]
        finding = by_load(_finding(slowness, text, those, members, held, thresholds), _worst(those), thresholds["least_load"])
        share = min(1.0, _worst(those).share)
        computes = finding.cause is Cause.COMPUTE_SLOW
        if not computes and share < thresholds["most_share_of_master"] and _is_usual(ranks, late, min(roster.ranks, default=0)):
            finding = replace(finding, by_design=_OF_MASTER)
        small = always_late(share, any(late[rank].had_onset for rank in ranks), thresholds["least_share_from_start"])
        refined = hardware.refined(finding, _REFINED)
        refined = hardware.on_one_link(refined) if refined.members is Members.EACH else refined
        yield doubted(refined, (*small, *waits_for_cores(cpu, roster, ranks)))
        yield from [blocked_ranks(victims)] if victims else []
    for hold in _single_holds(slowness, {*late, *at_slow_links, *passing_on}, victims, roster, thresholds):
        yield hardware.refined(_held_finding(roster, text, hold), (Cause.COMPUTE_SLOW,))


def _is_seen_late(slowness: Slowness, late: Straggler) -> bool:
    """Whether a member's proxy looks so seldom that waits of this length mean nothing: FX173 speaks of it."""
    return any(slowness.is_unpolled(rank, late.typical_ns) for rank in late.members)


def _is_usual(ranks: Sequence[int], late: Mapping[int, Straggler], master: int) -> bool:
    """Whether the first rank of the job alone is late, and its own history shows it so from the first recorded call on."""
    return tuple(ranks) == (master,) and not late[master].had_onset


def _single_holds(
    slowness: Slowness, others: Collection[int], victims: Collection[int], roster: Roster, thresholds: Thresholds
) -> Iterator[GpuHold]:
    """GPUs that are slow inside operations whose ranks come in time, each once, by what it loses most in."""
    seen = set(others)
    for hold in slowness.holds:
        # Who waits for a late rank comes late to all places of other rings.
        out = hold.rank in seen or (hold.of_rings and hold.rank in victims)
        if hold.share >= _least_share(hold, min(roster.ranks, default=0), thresholds) and not out:
            seen.add(hold.rank)
            yield hold


def _least_share(hold: GpuHold, master: int, thresholds: Thresholds) -> float:
    """Of the time: a GPU that may be late by work before the calls has to cost as much as any rank that is late to calls."""
    by_design = "most_share_of_master" if hold.rank == master else "least_share_from_start"
    least = "least_share_of_time" if hold.had_onset else by_design
    return thresholds[least if hold.of_rings else "least_share_held"]


def _held_finding(roster: Roster, text: EvidenceText, hold: GpuHold) -> Finding:
    return Finding(
        ranks=(hold.rank,),
        cause=Cause.COMPUTE_SLOW,
        stage=StageRef(component=Component.COMPUTE, operation=hold.kind, communicator=hold.communicator),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY if hold.had_onset and hold.slow >= _SURE_CALLS else Confidence.SUSPECT,
        evidence=(*_held_evidence(hold), *text.stack(hold.rank)),
        granularity=Granularity.GPU,
        anomaly=Anomaly.FAIL_SLOW,
        resource=Resource(channel=hold.channel, peer_ranks=tuple(rank for rank in hold.members if rank != hold.rank)),
        mechanism=Mechanism("late_end", "local"),
        impact=Impact(round(hold.lost_ns), round(hold.share, 3), None, "arrival"),
        since=roster.since(hold.rank, hold.since_ns) if hold.had_onset else None,
        next_steps=(
            f"compare the GPU of rank {hold.rank} with its neighbours: PCIe width and speed, clocks, other processes",
            "the network is not the cause: its chunks had arrived, and its own sends wait for nobody",
        ),
    )


def _held_evidence(hold: GpuHold) -> Iterator[Evidence]:
    yield Evidence(
        f"rank {hold.rank} took chunks of {hold.kind} of {hold.communicator} {hold.typical_ns / 1e6:.1f} ms later than "
        f"{counted(hold.peers, 'rank')} with the same part ({hold.usual_ns / 1e6:.1f} ms), in {hold.slow} of {hold.calls} "
        f"operations, {100 * hold.share:.0f} % of the time; its own sends did not wait meanwhile",
        hold.source,
    )
    if hold.channel is not None:
        yield Evidence(f"only channel {hold.channel} is late, the others of these operations are in time: not the network")


def _waits_for_an_equal(lateness: Latenesses, layout: Layout, thresholds: Thresholds) -> set[int]:
    """Ranks whose tensor-parallel group waits for another of its members: they come late elsewhere by what they waited."""
    inside = [item for item in lateness.found if item.communicator in layout.along(Axis.TENSOR)]
    known = [item for item in inside if 2 * item.late > item.calls and item.chance <= thresholds["most_chance"]]
    return {rank for item in known for rank in item.members} - {item.rank for item in known}


def _material(late: Straggler, thresholds: Thresholds) -> bool:
    """Most operations wait for it, about equally long or nearly all, or it became so, and the job loses time to it."""
    enough = late.counted >= thresholds["least_counted"] or late.late == late.calls > thresholds["least_counted"]
    regular = late.late >= thresholds["least_share_of_calls"] * late.turns and late.late >= thresholds["least_calls"]
    always = late.late >= max(2 * thresholds["least_calls"], thresholds["always_late"] * late.turns)
    steady = always or late.spread_ns <= thresholds["most_spread"] * late.typical_ns
    limit = min(thresholds["late_s"] * 1e9, thresholds["late_of_operation"] * late.usual_ns)
    material = late.share >= thresholds["least_share_of_time"] and late.typical_ns >= limit
    seldom = late.share < thresholds["least_share_from_start"] and late.late < thresholds["often_late"] * late.turns
    plain = late.had_onset or not seldom
    chance = chance_of_last(late.late, late.turns, len(late.members))
    return enough and regular and steady and material and plain and chance <= thresholds["most_chance"]


def _in_step(groups: Communicators, late: Collection[int]) -> Iterator[tuple[int, ...]]:
    """Late ranks, those together that work on one layer: members of a communicator of late ranks only."""
    together: nx.Graph = nx.Graph()
    together.add_nodes_from(sorted(late))
    for group in groups:
        if set(group.members) <= set(late):
            nx.add_path(together, group.members)
    yield from (tuple(sorted(ranks)) for ranks in nx.connected_components(together))


def _narrowed(late: Sequence[Straggler], thresholds: Thresholds) -> tuple[tuple[int, ...], Members, bool]:
    """Ranks whose GPUs take chunks late as well, if any; else one of all, for ranks that work in step are late together."""
    held = [each.rank for each in late if each.held_ns >= thresholds["least_held"] * each.typical_ns]
    ranks = tuple(held or [each.rank for each in late])
    return ranks, Members.EACH if held or len(ranks) == 1 else Members.ONE_OF, bool(held)


def _worst(late: Iterable[Straggler]) -> Straggler:
    """The one that the job loses most time to."""
    return max(late, key=lambda each: (each.lost_ns, -each.rank))


def _finding(
    slowness: Slowness, text: EvidenceText, late: Sequence[Straggler], members: Members, held: bool, thresholds: Thresholds
) -> Finding:
    first, least = _worst(late), thresholds["least_accounted"]
    # That its GPU takes chunks late shows whose lateness it is; the cause it is only when that is as long as the lateness.
    accounted = min(1.0, first.held_ns / first.typical_ns) if held and first.typical_ns else None
    computes = accounted is not None and accounted >= least
    ranks = tuple(sorted(each.rank for each in late))
    single = Granularity.GPU if held else Granularity.RANK
    others = tuple(rank for rank in first.members if rank not in ranks)
    return Finding(
        ranks=ranks,
        cause=Cause.COMPUTE_SLOW if computes else Cause.UNKNOWN,
        stage=_stage(slowness, first, computes, thresholds["least_one_direction"]),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY if first.counted >= thresholds["least_counted"] else Confidence.SUSPECT,
        evidence=(*_evidence(text, late, first, held), *unexplained(accounted, "chunks that wait for the GPU", least)),
        granularity=single if len(ranks) == 1 else Granularity.GROUP,
        members=members,
        anomaly=Anomaly.FAIL_SLOW,
        resource=Resource(peer_ranks=others),
        mechanism=Mechanism("gpu_not_ready" if held else "late_start", "local"),
        impact=Impact(round(first.lost_ns), round(first.share, 3), None, "arrival"),
        next_steps=(
            f"compare {evidence_text.ranks_text(ranks)} with their peers ({evidence_text.ranks_text(others)}): "
            "clocks, power and temperature of the GPU, other processes, host load, its share of the data",
            "the network is not the cause: nothing of it waits at a NIC",
        ),
    )


def _stage(slowness: Slowness, late: Straggler, computes: bool, least: float) -> StageRef:
    """Where most of the lateness arose; unknown when in both directions, after the last message, or at an end of the pipeline.

    The first stage sends only forward and the last only backward: what they send comes after work of both kinds.
    """
    parts: Mapping[StageName, float] = {StageName.FORWARD: late.forward_ns, StageName.BACKWARD: late.backward_ns}
    name = max(parts, key=lambda each: parts[each])
    known = slowness.stages.sends_both_ways(late.rank) and parts[name] >= least * late.own_ns > 0
    return StageRef(
        name=name if known else StageName.UNKNOWN,
        component=Component.COMPUTE if computes else Component.UNKNOWN,
        direction=name.value if known else None,
        operation=late.kind,
        communicator=late.communicator,
    )


def _evidence(text: EvidenceText, late: Sequence[Straggler], first: Straggler, held: bool) -> Iterator[Evidence]:
    for each in sorted(late, key=lambda item: (-item.lost_ns, item.rank))[:_SHOWN]:
        yield Evidence(
            f"rank {each.rank} arrived last in {each.late}/{each.calls} {each.kind} of {each.communicator} (median "
            f"{each.typical_ns / 1e6:.1f} ms late); peers spent {100 * each.share:.0f} % of the time waiting for it, "
            "and it waited for nobody",
            each.source,
        )
    if first.passed_ns or first.forward_ns or first.backward_ns:
        arose, came = first.own_ns / 1e6, first.passed_ns / 1e6
        yield Evidence(f"{arose:.0f} ms originated on this rank; {came:.0f} ms inherited from upstream stages", first.source)
    if held:
        yield Evidence(
            f"chunks that had arrived waited {first.held_ns / 1e6:.1f} ms longer for the GPU of rank {first.rank} than for "
            "those of its peers, in each operation",
            first.source,
        )
    elif len(late) > 1:
        yield Evidence("these ranks run in lockstep; the source cannot be isolated", None, supports=False)
    for each in late[:1]:
        yield from text.stack(each.rank)


def _clears(seen: Seen, slowness: Slowness, thresholds: Thresholds) -> str | None:
    """Only where every rank is in a group of equals that made enough calls, and none of those loses much to one rank."""
    known = [
        each for each in slowness.stragglers if slowness.stages.alike(each.members) and each.calls >= thresholds["least_seen"]
    ]
    cheap = not slowness.holds and slowness.most_awaited < thresholds["least_share_of_time"]
    if not cheap or not seen.all_in({rank for each in known for rank in each.members}):
        return None
    calls = sum(each.calls for each in known)
    return f"in {calls} collectives between hosts no rank is awaited at the cost of a tenth of the time"


RULE = Rule(
    code="FX172",
    name="rank-awaited",
    seed="Mycroft sections 4.3 and 7.1 (late start), VenusTrace section 3.3",
    needs=(Need(ChunkLogs, "chunks", "only NCCL's profiler interface shows who waits inside an operation"),),
    thresholds=(
        Threshold("least_share_of_calls", 0.6, "or of steps, where one call of each shows it; late now and then is jitter"),
        Threshold("least_calls", 5, "fewer are chance"),
        Threshold("most_chance", 0.01, "that one of equal members is last so often; the other gates must be passed as well"),
        Threshold("least_counted", 3, "steps that show a lateness of their own; fewer only when all operations agree"),
        Threshold("least_own_share", 0.8, "of its lateness; on a busy host ranks that neighbours delay by turns have less"),
        Threshold("most_spread", 0.5, "of the typical lateness: what varies more has no single cause, unless it never fails"),
        Threshold("always_late", 0.9, "of its calls: who is late nearly always may be late by different amounts"),
        Threshold("often_late", 0.75, "of its calls: in fewer, a small lag from the start may be how the job is made"),
        Threshold("least_share_of_time", 0.1, "of the time: below a tenth, jitter of many ranks and overlap explain it"),
        Threshold("late_s", 1.0, 'late by that much always counts (Mycroft section 5.2: "we choose one second")'),
        Threshold("late_of_operation", 0.1, "of the median operation, once all are there: less is no lateness"),
        Threshold("least_share_from_start", 0.2, "a smaller lag from the first recorded call on may be how the job is made"),
        Threshold("most_share_of_master", 0.4, "of the time: no first rank of a sound job logs for so long in every step"),
        Threshold("least_accounted", LEAST_ACCOUNTED, "of the lateness that must be measured at its GPU to be the cause"),
        Threshold("least_held", 0.02, "of the lateness: below that the GPU takes chunks like its peers"),
        Threshold("least_load", LEAST_LOAD, "times an even share of the exchanges that it is late to: more tokens fall on it"),
        Threshold("least_share_held", LEAST_SHARE_HELD, "of the time, lost to a GPU that takes chunks late inside operations"),
        Threshold("least_one_direction", 0.6, "of the lateness; with less in one direction the stage is not known"),
        Threshold("least_seen", 10, "calls of a group in which somebody awaited would have shown"),
    ),
    concludes="The rank that a moving job waits for although the network does its part, or the group in step it is in.",
    evaluate=_evaluate,
    clears=_clears,
)
