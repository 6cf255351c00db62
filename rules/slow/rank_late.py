"""A rank of a moving job comes last to most collectives, and the others wait for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

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
    Members,
    StageName,
    StageRef,
)
from forensics.rules.interface import Need, Rule, Threshold, Thresholds, Undecided
from forensics.rules.reductions.arrivals.late_roots import in_step, roots, with_silent
from forensics.rules.reductions.arrivals.lateness import Lateness, Latenesses
from forensics.rules.reductions.epochs.slow_links import JudgedLinks
from forensics.rules.reductions.frontier.long_stages import LongStage, long_stage_of
from forensics.rules.reductions.frontier.messages import UnrecordedMessages
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.hardware.accounted import LEAST_ACCOUNTED, unexplained
from forensics.rules.reductions.hardware.causes import Hardware
from forensics.rules.reductions.hardware.cores import BusyHosts, late_by_hosts
from forensics.rules.reductions.hardware.cpu import HostCpu, waits_for_cores
from forensics.rules.reductions.hardware.held_down import of_held_down
from forensics.rules.reductions.network.awaited_links import lost_to_links
from forensics.rules.reductions.network.call_paces import CallPaces
from forensics.rules.reductions.network.late_by_calls import in_slow_transfers, is_late_by_calls
from forensics.rules.reductions.network.long_calls import LongCalls, held_inside
from forensics.rules.reductions.network.slowness import Slowness
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.before_stop import LateBeforeStop, before_stop
from forensics.rules.reductions.pipeline.core_waits import only_lacked_a_core
from forensics.rules.reductions.pipeline.equals import is_alone, is_of_equals, is_of_stages, unseen_waits
from forensics.rules.reductions.pipeline.guest_hosts import GuestHosts, findings_of_guests, may_be_of_guests
from forensics.rules.reductions.pipeline.host_work import HostWork
from forensics.rules.reductions.pipeline.late_evidence import late_doubts, late_evidence, usual_stage
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.pipeline.own_work import Excess, OwnWork
from forensics.rules.reductions.pipeline.waited_elsewhere import arose_in_itself, is_late_in_passes, waited_elsewhere
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.ranks.processor_time import ProcessorTimes
from forensics.rules.reductions.ranks.roster import RecordedRanks, Roster
from forensics.rules.reductions.stacks.rounds import alone_at_work
from forensics.rules.reductions.stacks.samples import StacksByRank
from forensics.rules.reductions.steps.times import StepTimes
from forensics.rules.reductions.text.evidence_text import EvidenceText, counted, ranks_text
from forensics.rules.reductions.text.seen import Seen
from forensics.vocabulary import CAUSE_OF_STAGE

_CAUSES = {
    **CAUSE_OF_STAGE,
    StageName.FORWARD: Cause.COMPUTE_SLOW,
    StageName.BACKWARD: Cause.COMPUTE_SLOW,
    StageName.OPTIMIZER: Cause.COMPUTE_SLOW,
}

# Late because its host was late or its GPU: where nothing else tells, the state of the GPU may.
_REFINED = (Cause.COMPUTE_SLOW, Cause.UNKNOWN)
_SHOWN = {True: "what its stage times show", False: "what its stacks show"}
_MS = 1e6
_NOT_READ = Hardware()
_DUTY = (
    "only this rank has work before that call, it comes in time to those between, and it has been so since the record began: "
    "the job is made so"
)


def _evaluate(
    roster: Roster, stacks: StacksByRank, lateness: Latenesses, own: OwnWork, cpu: HostCpu, hardware: Hardware,
    liveness: Liveness, text: EvidenceText, layout: Layout, windows: FrontierWindows, slowness: Slowness,
    before: LateBeforeStop, guests: GuestHosts, long: LongCalls, messages: UnrecordedMessages, busy: BusyHosts,
    hosts: HostWork, times: StepTimes, used: ProcessorTimes, paces: CallPaces, judged: JudgedLinks, thresholds: Thresholds,
) -> Iterator[Finding]:  # fmt: skip
    yield from (of_guests := list(findings_of_guests(guests, liveness, roster)))
    were = [item for item in before if _material(item, layout, thresholds) and _speaks(item, layout, thresholds)]
    yield from (hardware.refined(before_stop(item, roster), _REFINED) for item in were)
    groups = [layout.members[label] for label in layout.along(Axis.TENSOR)]
    of_itself = partial(arose_in_itself, layout=layout, times=times)
    material = list(roots(lateness, lambda item: _material(item, layout, thresholds, hardware), of_itself))
    late = in_step(material, groups, lateness.linked, lateness.seen)
    late = [(item, others and with_silent((item.rank, *others), lateness, roster)) for item, others in late]
    lost = lost_to_links(slowness, layout)
    late = [(item, others) for item, others in late if not _waits_for_a_link(item, lost, layout, thresholds)]
    late = [(item, others) for item, others in late if not is_late_by_calls(item, lateness, paces)]
    late = [(item, others) for item, others in late if not _passes_on(item, times, layout, thresholds, hardware)]
    alone, jump = alone_at_work(stacks), thresholds["least_jump"]
    unseen = {item.rank: unseen_waits(item, layout, messages, roster.ranks, alone, jump) for item, _ in late}
    late = [(item, () if is_alone(item, alone) else tuple({*others, *unseen[item.rank]})) for item, others in late]
    late = [(item, others) for item, others in late if not unseen[item.rank] or 2 * len(others) < len(roster.ranks)]
    if 2 * max(len(late), len(own.found)) > len(roster.ranks):
        return  # where most ranks are late in turn nobody holds the others up
    stated = [
        (item, _finding(roster, stacks, cpu, text, windows, item, (others, unseen[item.rank]), layout, thresholds))
        for item, others in _distinguished(late, (own, hosts))
        if not is_of_stages(item, layout)
        and not only_lacked_a_core(item, cpu, roster, used, stacks.get(item.rank), thresholds["least_lost_when_short"] * _MS)
    ]
    least = thresholds["least_held_down"]
    heard = (
        each if _speaks(item, layout, thresholds) else of_held_down(each, hardware, _REFINED, least) for item, each in stated
    )
    found = [each for each in heard if each is not None]
    named = {rank for finding in found for rank in finding.ranks}
    found += [_of_own_work(roster, cpu, text, item) for item in own.found if item.rank not in named]
    found = [held_inside(each, long) for each in found if not may_be_of_guests(each, of_guests)]
    found = [in_slow_transfers(each, paces, judged) for each in found]
    for finding in late_by_hosts(found, busy, roster):
        yield hardware.refined(_undated(finding) if liveness.motion is Motion.UNSEEN else finding, _REFINED)


def _waits_for_a_link(late: Lateness, lost: Mapping[int, float], layout: Layout, thresholds: Thresholds) -> bool:
    """Whether a slow link to those that it works in step with accounts for its lateness to others."""
    least = thresholds["least_share_of_link"] * late.share
    return not is_of_equals(late, layout) and lost.get(late.rank, 0.0) >= least > 0


def _passes_on(late: Lateness, times: StepTimes, layout: Layout, thresholds: Thresholds, hardware: Hardware) -> bool:
    """Whether what it is late to ranks in step with it arose in collectives with others: all members of these are late so."""
    late = _among_equals(late, layout, thresholds)
    own = late.share * (1 - waited_elsewhere(late, times)) if is_of_equals(late, layout) else late.share
    return own < min(late.share, _least_of_equals(late, hardware, thresholds))


def _among_equals(late: Lateness, layout: Layout, thresholds: Thresholds) -> Lateness:
    """Its lateness to ranks that do the same work at the same time, where it has a material one; else that to replicas."""
    within = late.within
    is_shown = within is not None and is_of_equals(within, layout) and _material(within, layout, thresholds)
    return within if within is not None and is_shown else late


def _distinguished(
    late: Iterable[tuple[Lateness, tuple[int, ...]]], works: Iterable[OwnWork | HostWork]
) -> Iterator[tuple[Lateness, tuple[int, ...]]]:
    """Late ranks without those that work as long as others where another one works longer: they waited for it."""
    judged = [({item.rank for item in work.found}, work.compared) for work in works if work.found]
    for item, others in late:
        passes_on = {rank for rank in (item.rank, *others) if any(rank in known - slow for slow, known in judged)}
        if item.rank not in passes_on:
            yield item, tuple(rank for rank in others if rank not in passes_on)


def _undated(finding: Finding) -> Finding:
    """A suspicion at most: whether the job still moves is not known."""
    why = "nothing shows that the job still moves: if it stands still, what it was slow by before is another question"
    return replace(finding, confidence=Confidence.SUSPECT, evidence=(*finding.evidence, Evidence(why, None, supports=False)))


def _least_of_equals(late: Lateness, hardware: Hardware, thresholds: Thresholds) -> float:
    """Which share counts among equals: a smaller one where the clocks of its GPU alone are held down."""
    held = hardware.alone_held_down(late.rank, late.members, thresholds["least_held_down"])
    return thresholds["least_share_held_down" if held else "least_share_of_equals"]


def _material(late: Lateness, layout: Layout, thresholds: Thresholds, hardware: Hardware = _NOT_READ) -> bool:
    """Most calls wait for it, more often than by chance, and the time between calls follows."""
    regular = late.late >= thresholds["least_share_of_calls"] * late.calls and late.late >= thresholds["least_calls"]
    likely = late.chance <= thresholds["most_chance"] or late.jumped >= thresholds["least_jump"]
    is_equal = is_of_equals(late, layout)
    least = _least_of_equals(late, hardware, thresholds) if is_equal else thresholds["least_share_of_time"]
    return regular and likely and late.share >= least and not late.absorbed


def _speaks(late: Lateness, layout: Layout, thresholds: Thresholds) -> bool:
    """Whether the rank became late in the record, or costs so much that it matters how it has always been.

    Who meets ranks of other pipeline stages only, as in groups of embeddings, ends its passes earlier or later by the schedule,
    and where some stage is slow by more or less.
    """
    is_equal = is_of_equals(_among_equals(late, layout, thresholds), layout)
    always = is_equal or late.share >= thresholds["least_share_from_start"]
    return (late.since_ns is not None or always) and not is_of_stages(late, layout)


def _finding(
    roster: Roster, stacks: StacksByRank, cpu: HostCpu, text: EvidenceText, windows: FrontierWindows, late: Lateness,
    beside: tuple[tuple[int, ...], frozenset[int]], layout: Layout, thresholds: Thresholds,
) -> Finding:  # fmt: skip
    """`beside` are other ranks that may be meant, and those of them for whose messages, of which nothing tells, it may wait."""
    others, unseen = beside
    measured = None if others or unseen else long_stage_of(late.rank, windows)
    own = usual_stage({} if unseen else stacks, late, in_passes=is_late_in_passes(late, layout))
    stage, accounted = _measured_stage(measured, late) if measured else own
    on_device = late.on_device if measured is None else measured.on_device
    least = thresholds["least_accounted"]
    known = accounted if measured or stage is not StageName.UNKNOWN else None
    against = tuple(late_doubts(roster, cpu, late, beside))
    return Finding(
        ranks=tuple(sorted((late.rank, *others))),
        cause=_cause(on_device, stage, accounted >= least),
        stage=StageRef(
            name=stage,
            component=Component.COMPUTE if on_device else Component.UNKNOWN,
            operation=late.kind,
            communicator=late.communicator,
        ),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.SUSPECT if against else Confidence.LIKELY,
        evidence=(
            *late_evidence(late),
            *text.stack(late.rank),
            *unexplained(known, _SHOWN[measured is not None], least),
            *against,
        ),
        granularity=Granularity.GROUP if others else Granularity.RANK,
        members=Members.ONE_OF if others else Members.EACH,
        anomaly=Anomaly.FAIL_SLOW,
        by_design=_DUTY if late.is_duty else None,
        impact=Impact(late.lost_ns, round(late.share, 3), None, "arrival"),
        since=roster.since(late.rank, late.since_ns, "its host's realtime"),
        next_steps=(f"compare what rank {late.rank} does before this call with its peers: load, clocks, its data",),
    )


def _of_own_work(roster: Roster, cpu: HostCpu, text: EvidenceText, item: Excess) -> Finding:
    against = waits_for_cores(cpu, roster, (item.rank,))
    longer = f"rank {item.rank} worked {item.excess_ns / 1e6:.0f} ms longer than {ranks_text(item.peers)}, with the same work"
    often = f"in {item.late} of {counted(item.steps, 'step')} of {item.step_ns / 1e6:.0f} ms"
    cost = f"the others waited for it {100 * item.share:.0f} % of that time"
    outside = "what is left of a step outside calls, messages included, by the clock of each rank"
    return Finding(
        ranks=(item.rank,),
        cause=Cause.UNKNOWN,
        stage=StageRef(),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.SUSPECT if against else Confidence.LIKELY,
        evidence=(
            Evidence(f"{longer}, {often}; {cost}", item.source),
            Evidence(outside, None),
            *text.stack(item.rank),
            *against,
        ),
        granularity=Granularity.RANK,
        anomaly=Anomaly.FAIL_SLOW,
        impact=Impact(round(item.lost_ns), round(item.share, 3), item.late, "arrival"),
        since=roster.since(item.rank, item.since_ns, "its host's realtime"),
        next_steps=(f"compare clocks, temperature and load of rank {item.rank} with those of {ranks_text(item.peers)}",),
    )


def _cause(on_device: bool, stage: StageName, is_accounted: bool) -> Cause:
    if on_device:
        return Cause.COMPUTE_SLOW
    return _CAUSES.get(stage, Cause.HOST_STALL) if is_accounted else Cause.UNKNOWN


def _measured_stage(measured: LongStage, late: Lateness) -> tuple[StageName, float]:
    """The stage whose recorded times are long on the rank, and which part of its cost that accounts for."""
    return measured.name, min(1.0, measured.culprit.share / late.share)


def _clears(seen: Seen, late: Latenesses, own: OwnWork, layout: Layout, times: StepTimes, thresholds: Thresholds) -> str | None:
    """Only where a late rank would have been seen: of every rank arrivals at enough calls, dated well enough."""
    if own.found or not seen.all_in(late.seen) or any(_material(item, layout, thresholds) for item in late.found):
        return None
    if 0 < times.typical_ns * thresholds["least_share_of_time"] < late.least_ns:
        step = f"a step takes {times.typical_ns / 1e6:.0f} ms"
        return Undecided(f"{step}, and who is {late.least_ns / 1e6:.0f} ms late in it is not seen to be")
    reason = f"in {late.calls} calls none of {len(seen.ranks)} ranks is last in most at the cost of a fifth of the time"
    return f"{reason}, as far as {late.least_ns / 1e6:.0f} ms can be seen"


RULE = Rule(
    code="FX160",
    name="rank-late",
    seed="StageFrontier and Mycroft section 9 (arrival order)",
    needs=(Need(RecordedRanks, "recorder", "arrival times are in the recorder"),),
    thresholds=(
        Threshold("least_share_of_calls", 0.5, "a rank that is late now and then is jitter or a periodic duty"),
        Threshold("least_calls", 5, "fewer are chance"),
        Threshold("least_share_of_time", 0.2, "below a fifth, overlap and legal skew explain it"),
        Threshold(
            "least_share_of_equals", 0.1, "tensor-parallel ranks do the same work at the same time: boards differ by less"
        ),
        Threshold("least_share_held_down", 0.03, "the same, where the clocks of its GPU alone are held down"),
        Threshold("least_held_down", 1.2, "times the clocks of its peers: those of sound hosts differ by less"),
        Threshold("least_share_from_start", 0.4, "a smaller lag from the first recorded call on may be how the job is made"),
        Threshold(
            "least_accounted", LEAST_ACCOUNTED, "of the lost time that must be measured in a stage before it is the cause"
        ),
        Threshold("least_share_of_link", 0.5, "of its lateness: what a slow link to ranks in step with it accounts for"),
        Threshold("least_lost_when_short", 1000.0, "milliseconds that were lost since it became late, on a host short of CPU"),
        Threshold("most_chance", 0.01, "that one of equal members is last so often: of two, either is half the time"),
        Threshold("least_jump", 10.0, "times as late as before, to every call since: of two that is no chance either"),
    ),
    concludes="A rank of a moving job that most calls of one kind wait for, with the time lost to it.",
    evaluate=_evaluate,
    clears=_clears,
)
