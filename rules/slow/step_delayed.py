"""Single steps took longer than the others, because of one rank, or of one transfer, that the rest of the job waited for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
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
from forensics.rules.reductions.epochs.slow_links import JudgedLinks
from forensics.rules.reductions.frontier.duties import first_ranks
from forensics.rules.reductions.hardware.causes import Hardware
from forensics.rules.reductions.hardware.cores import BusyHosts, shown_by_cores
from forensics.rules.reductions.hardware.cpu import HostCpu, all_lack_cores
from forensics.rules.reductions.network.late_ends import ends_of_slow_links
from forensics.rules.reductions.network.slowness import Slowness
from forensics.rules.reductions.pipeline.call_place import CallPlace
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.pipeline.delay import Delay, Delays
from forensics.rules.reductions.pipeline.delay_roots import FAR, Blame, few_of, roots_of
from forensics.rules.reductions.pipeline.delay_text import advice, happened
from forensics.rules.reductions.pipeline.late_alike import moves
from forensics.rules.reductions.pipeline.late_hosts import has_rhythm, is_amid, is_brief, nearly_as_long, stands_out
from forensics.rules.reductions.pipeline.on_path import OnPath, agreeing, on_path
from forensics.rules.reductions.pipeline.slow_callers import SlowCallers, findings_of_callers
from forensics.rules.reductions.pipeline.slow_hosts import HostsByPasses, findings_of_hosts
from forensics.rules.reductions.pipeline.slow_steps import SlowSteps
from forensics.rules.reductions.pipeline.traced_places import TracedPlaces
from forensics.rules.reductions.pipeline.transfer_stages import with_stage_of_path
from forensics.rules.reductions.pipeline.turns import of_either, of_two_passes
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.text.evidence_text import counted, ranks_text
from forensics.rules.reductions.text.seen import Seen

_PAUSE = "a host is held up for as long now and then in a sound job: garbage collection, the operating system, a file system"
_HICCUP = "one step longer by so little is no fault: an allocation of memory holds a host up for as long"
_SHOWN, _MS = 3, 1_000_000
_LARGEST_NODE = 8  # GPUs of a node: somebody can look at them one by one
# Of all steps: where so many are neither usual nor long, samples differ in length.
_MANY = 0.25
# One step that was shorter may be the one that is unlike the others.
_ENOUGH_USUAL = 2
_DUTY = "once, or every so many steps, between the passes: one rank logs, saves or evaluates there in a sound job too"
_DIFFER = "most steps of this job are longer than its usual ones: a step or two that are longer still accuse nobody"
_LENGTHS = "its steps are of many lengths: one step in which a rank computes for longer still may have had longer samples"
_AS_LONG = "as many steps were nearly as long, and nobody held them up that is seen: so the steps of this job differ"
_BEFORE_BARRIER = "it came late to barriers alone, which make the others wait while one rank saves, evaluates or sets up"
_LACKS_CORES = "the hosts of the job are short of CPU: a rank that is ready to go on waits for a core by so much there"
_OF_DATA = "ranks that work on the same data were late alike, and others in other steps: samples that are longer do that"


def _evaluate(
    connection: DuckDBPyConnection, delays: Delays, recorded: CallPlaces, traced: TracedPlaces, slow: SlowSteps, roster: Roster,
    hardware: Hardware, busy: BusyHosts, slowness: Slowness, judged: JudgedLinks, hosts: HostsByPasses, callers: SlowCallers,
    cpu: HostCpu, thresholds: Thresholds,
) -> Iterator[Finding]:  # fmt: skip
    yield from (*findings_of_hosts(hosts, hardware), *findings_of_callers(callers, busy))
    places = traced if any(delay.is_traced for delay in delays.found) else recorded
    blamed: dict[Blame, list[Delay]] = defaultdict(list)
    for delay in delays.found:
        blamed[delay.ranks, delay.is_transfer, delay.is_spread].append(delay)
    kept = few_of(roots_of(delays, blamed, roster, thresholds), roster, thresholds["most_roots"])
    for_cores = thresholds["most_for_core_ms"] * _MS if all_lack_cores(cpu, roster) else 0.0
    explained, dated = {*ends_of_slow_links(kept, slowness, judged), *hosts.ranks}, agreeing(slow, delays)
    for found in kept:
        if not found[0].is_transfer and explained.issuperset(found[0].ranks):
            continue  # what the network shows of the link, or all passes of its host, say why
        least = thresholds["least_again"], thresholds["least_steps_lost"]
        if found[0].by_arrivals and not stands_out(delays, found, places, roster.hosts, *least):
            continue
        path = on_path(found, places, dated)
        if path.is_absorbed:
            continue
        finding = path.added(_finding(connection, delays, found, places, path, roster, thresholds), delays.typical_ns)
        # What hosts compute between calls that they wait in themselves (gloo) needs a core too.
        if all((delay.by_arrivals or delay.on_host is not False) and delay.excess_ns < for_cores for delay in found):
            finding = replace(finding, by_design=finding.by_design or _LACKS_CORES)
        # Not the share of the record: what a GPU is slowed by must explain the step that was long.
        slowdown = 1 + max(delay.excess_ns for delay in found) / delays.typical_ns if delays.typical_ns else None
        finding = hardware.refined(finding, (Cause.COMPUTE_SLOW, Cause.UNKNOWN), slowdown)
        # Cores that are taken for good, as far as is seen, make no single transfer of many late.
        yield shown_by_cores(finding, busy, roster) if len(found) >= thresholds["least_again"] else finding


def _finding(
    connection: DuckDBPyConnection,
    delays: Delays,
    found: Sequence[Delay],
    places: CallPlaces,
    path: OnPath,
    roster: Roster,
    thresholds: Thresholds,
) -> Finding:
    worst = max(found, key=lambda delay: delay.excess_ns)
    place = places.of_call(worst.witness, worst.communicator, worst.sequence) or CallPlace()
    place = place if place.in_pass and place.direction else path.place(worst.step) or place
    if worst.is_spread or worst.before_step:  # no pass stands out
        place = CallPlace(stage=place.stage)
    turned, amid = of_either(places, worst, place, in_turn=path.in_turn), place.in_pass or is_amid(worst, places)
    turned = CallPlace(stage=turned.stage) if _may_be_earlier(worst, place, places) else turned
    lost = sum(delay.excess_ns for delay in found)
    stated = not worst.one_of or _is_narrow(worst.ranks, roster, thresholds["most_members"])
    return Finding(
        ranks=worst.ranks if stated else (),
        cause=_cause(worst),
        stage=with_stage_of_path(places, worst, _stage(worst, turned)),
        belief=Belief.GROUP_SYMPTOM if worst.one_of else Belief.BEHIND_AND_BUSY,
        confidence=Confidence.SUSPECT if _is_small(delays, found, thresholds) else _confidence(delays, found, worst, place),
        evidence=(*_evidence(connection, delays, found), *of_two_passes(place, turned)),
        granularity=(Granularity.GROUP if worst.one_of else Granularity.RANK) if stated else Granularity.JOB,
        members=Members.ONE_OF if worst.one_of and stated else Members.EACH,
        anomaly=Anomaly.FAIL_SLOW,
        by_design=None if path.shows_device(worst) else _by_design(delays, found, worst, roster, thresholds, amid=amid),
        impact=Impact(round(lost), round(lost / (lost + delays.steps * delays.typical_ns), 3), len(found), "arrival"),
        since=roster.since(worst.ranks[0], worst.at_ns, "its host's realtime"),
        next_steps=(advice(worst),),
    )


def _may_be_earlier(worst: Delay, place: CallPlace, places: CallPlaces) -> bool:
    """Whether what came late to the first call of a step, in its backward pass, may have computed longer in forward."""
    own = places.steps(worst.witness)
    at = own.record.issued(worst.communicator, worst.sequence) if own else None
    is_late = not worst.is_transfer and worst.on_host is not True and place.direction == StageName.BACKWARD
    return is_late and own is not None and at is not None and bool((own.begins == at).any())


def _is_narrow(ranks: Sequence[int], roster: Roster, most: float) -> bool:
    """Whether to say that it is one of these tells anything: most ranks of a job do not, unless they are those of one node."""
    hosts = {roster.host_of(rank) for rank in ranks}
    on_one_node = len(ranks) <= _LARGEST_NODE and len(hosts) == 1 and None not in hosts
    return len(ranks) <= min(most, len(roster.ranks) // 2) or on_one_node


def _confidence(delays: Delays, found: Sequence[Delay], worst: Delay, place: CallPlace) -> Confidence:
    weak = (
        worst.one_of
        or worst.by_ends
        or worst.shown_by is not None
        or delays.usual < _ENOUGH_USUAL
        or 2 * len(found) < delays.long
    )
    return Confidence.SUSPECT if weak or (place.direction is None and not worst.is_spread) else Confidence.LIKELY


def _is_small(delays: Delays, found: Sequence[Delay], thresholds: Thresholds) -> bool:
    """Whether it held up a single step, and little of it."""
    return len(found) == 1 and found[0].excess_ns < thresholds["least_once"] * delays.typical_ns


def _by_design(
    delays: Delays, found: Sequence[Delay], worst: Delay, roster: Roster, thresholds: Thresholds, *, amid: bool
) -> str | None:
    """Why a sound job may be late like this; None where it would not. `amid`: its work was not that between two steps."""
    seldom, pauses = len(found) < thresholds["least_again"], worst.may_be_host
    differ = 2 * delays.usual < delays.steps and worst.excess_ns < thresholds["least_steps_lost"] * delays.typical_ns
    if seldom and differ:
        return _DIFFER
    if seldom and not (worst.is_transfer or worst.on_host) and _is_of_many_lengths(delays, worst):
        return _LENGTHS
    is_small = _is_small(delays, found, thresholds)
    if worst.is_transfer and seldom and nearly_as_long(delays, found, worst):
        return _AS_LONG
    if worst.is_transfer and not worst.by_arrivals and worst.excess_ns >= thresholds["least_transfer_ms"] * _MS:
        return None  # all had come, so that no host was held up
    if worst.is_transfer or worst.is_spread:
        return _HICCUP if is_small else None
    if all(delay.at_barrier for delay in found):
        return _BEFORE_BARRIER
    if all(moves(delays, delay) for delay in found):
        return _OF_DATA
    is_first = worst.ranks[0] in first_ranks(roster.hosts)
    # Whoever logs or saves does so on its host, which comes late; a first rank may evaluate. Traces hide waits for messages.
    is_once = len(found) == 1 and (is_first or worst.is_traced or worst.on_host is not False)
    if not amid and (is_once or (pauses and has_rhythm(found, is_first))):
        return _DUTY
    if seldom and nearly_as_long(delays, found, worst):
        return _AS_LONG
    # A host that allocates stands still, and makes its next calls late: a device behind calls in time does not allocate.
    if is_small and worst.on_host is not False:
        return _HICCUP
    least, most = (thresholds[name] * _MS for name in ("least_pause_ms", "most_pause_ms"))
    return _PAUSE if pauses and seldom and is_brief(delays, found, least, most) else None


def _is_of_many_lengths(delays: Delays, worst: Delay) -> bool:
    """Whether so many steps are neither usual nor long that it may be the longest of them."""
    is_many = len(delays.between_ns) > _MANY * delays.steps
    return is_many and worst.excess_ns < FAR * max(delays.between_ns)


def _cause(delay: Delay) -> Cause:
    if delay.is_transfer:
        return Cause.NETWORK_SLOW
    return {True: Cause.HOST_STALL, False: Cause.COMPUTE_SLOW, None: Cause.UNKNOWN}[delay.on_host]


def _stage(delay: Delay, place: CallPlace) -> StageRef:
    component = {True: Component.HOST, False: Component.COMPUTE, None: Component.UNKNOWN}[delay.on_host]
    name = StageName(place.direction) if place.direction and not (place.opens and delay.on_host) else StageName.UNKNOWN
    return StageRef(
        name=name,
        component=Component.COMMUNICATION if delay.is_transfer else component,
        direction=place.direction,
        operation=delay.kind,
        communicator=delay.communicator,
        sequence=delay.sequence,
        microbatch=place.microbatch,
        model_chunk=place.chunk,
        pipeline_stage=place.stage,
    )


def _evidence(connection: DuckDBPyConnection, delays: Delays, found: Sequence[Delay]) -> Iterator[Evidence]:
    for delay in sorted(found, key=lambda each: -each.excess_ns)[:_SHOWN]:
        took_s = (delays.typical_ns + delay.excess_ns) / 1e9
        longer = f"a step took {took_s:.2f} s, {delay.excess_ns / 1e6:.0f} ms more than usual"
        yield Evidence(f"{longer}: {happened(delay)}", _source(connection, delay))
    if len(found) > 1:
        yield Evidence(f"so in {counted(len(found), 'step')} of {delays.steps}", None)
    if delays.usual < _ENOUGH_USUAL:
        yield Evidence("only one step shows what is usual", None, supports=False)
    if found[0].shown_by is not None:
        why = f"{ranks_text(found[0].ranks)} left no record: a transfer of that call that took as long would look the same"
        yield Evidence(why, None, supports=False)
    if found[0].by_ends:
        why = "the time inside calls was not recorded: ends are as watchdogs saw them, up to a round late"
        yield Evidence(why, None, supports=False)


def _source(connection: DuckDBPyConnection, delay: Delay) -> str | None:
    source, locator = delay.source
    rows = rows_of(connection, "sources", f"SELECT path FROM sources WHERE source_id = {source}")
    return next((f"{path}#entry={locator}" for (path,) in rows), None)


def _clears(seen: Seen, delays: Delays, thresholds: Thresholds) -> str | None:
    """Only where a rank that holds up a step would have been seen: every rank with the time inside its calls."""
    if delays.unexplained or delays.found:
        return Undecided(f"{counted(delays.unexplained, 'step')} took longer than usual, and what held them up is not seen")
    if not seen.all_in(delays.timed):
        return Undecided("the time inside calls is not recorded of every rank")
    return f"none of {delays.steps} steps took a ninth longer than the others"


RULE = Rule(
    code="FX175",
    name="step-delayed",
    seed="VenusTrace section 3.3 (trace graph, critical path), Mycroft section 7.1 (arrival order)",
    needs=(Need(Delays, "steps", "only whole steps in the recorder show what is usual"),),
    thresholds=(
        Threshold("most_roots", 3, "where every long step waits for another rank, it is how the job is"),
        Threshold("most_members", 64, "naming a larger group would say nothing: then the job is said to be slow by it"),
        Threshold("least_again", 3, "steps that a host holds up: fewer are those of a host that is busy or collects garbage"),
        Threshold("least_pause_ms", 1000, "that a host is late by once: garbage collection takes as long in sound jobs"),
        Threshold(
            "most_pause_ms", 3000, "the same where it costs less than a tenth of the recorded time: files wait for storage"
        ),
        Threshold("least_once", 0.2, "of a usual step, that one step is longer: less may be a host that allocates"),
        Threshold("least_transfer_ms", 100, "that one transfer between devices takes longer once: resent packets cost less"),
        Threshold("least_steps_lost", 3, "usual steps lost at once where hosts wait themselves (gloo): less is a busy host"),
        Threshold("most_for_core_ms", 100, "that steps are longer where no host has cores enough: some slices of a scheduler"),
        Threshold("least_apart", 0.75, "of what the next one passed on: who passed on less was late first"),
        Threshold("least_own", 0.5, "of what the step was longer: no call of its own, or what its equals in step wait for"),
        Threshold("most_passed_on", 0.25, "of what others waited for a rank bit by bit: who waited more himself passes it on"),
    ),
    concludes="The rank, or the transfer, that held up single steps, with pass, microbatch and pipeline stage.",
    evaluate=_evaluate,
    clears=_clears,
)
