"""The group loses time to one stage of the step: on one rank that recurs, on changing ranks, or on all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace

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
    StageRef,
)
from forensics.rules.interface import Need, Rule, Threshold, Thresholds, Undecided
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.frontier.culprits import EVERYWHERE
from forensics.rules.reductions.frontier.duties import duty_of, first_ranks, is_unstaged, may_wait, small_of, wait_of
from forensics.rules.reductions.frontier.first_steps import longer_than_first
from forensics.rules.reductions.frontier.gates import REASONS, Gates
from forensics.rules.reductions.frontier.long_stages import (
    is_early_in_time,
    is_late_before,
    is_limited,
    is_of_device,
    stage_of,
)
from forensics.rules.reductions.frontier.losses import Culprit
from forensics.rules.reductions.frontier.matrix import REST
from forensics.rules.reductions.frontier.messages import Messengers
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.frontier.several_windows import is_alone, named_once, wait_for_another, wait_for_named
from forensics.rules.reductions.frontier.unseen_delays import LIKELY_STEPS, SEEN_MEETINGS, unseen_delay
from forensics.rules.reductions.frontier.verdicts import WindowVerdict, began, is_plain, judge, longest
from forensics.rules.reductions.hardware.accounted import unexplained
from forensics.rules.reductions.hardware.causes import Hardware
from forensics.rules.reductions.hardware.cpu import HostCpu, always_late, doubted, waits_for_cores
from forensics.rules.reductions.hardware.drawn_power import DrawnPower, named_by_power
from forensics.rules.reductions.hardware.held_down import named_by_clocks
from forensics.rules.reductions.pipeline.before_stop import Stopped, of_past
from forensics.rules.reductions.pipeline.device_work import DeviceWork, finding_of
from forensics.rules.reductions.pipeline.host_work import HostWork, StageTimes
from forensics.rules.reductions.pipeline.own_work import LEAST_PART, OwnWork
from forensics.rules.reductions.pipeline.traced_work import TracedWork
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.text.blocked_ranks import blocked_ranks
from forensics.rules.reductions.text.evidence_text import ranks_text
from forensics.rules.reductions.text.stage_advice import stage_advice
from forensics.rules.reductions.waits.completions import HOST_BACKENDS
from forensics.vocabulary import CAUSE_OF_STAGE

_COMPUTES = frozenset({"forward", "backward", "optimizer"})
_PASSES = frozenset({"forward", "backward"})
_ON_HOST = frozenset({"data", "callbacks", "checkpoint", "eval", "other"})
_COMPARED = {"peers": "than on its peers", "history": "than before", "usual": "than in its usual step"}
_ENOUGH_STEPS = 5
_SHARE = "a communicator holds them up in this pass for one that is as late to it by another stage:"
_AS_LONG = (
    "by the times inside their calls these ranks work as long as those with the same work: their hosts wait in that stage, or "
    "had more data in these steps"
)


def _evaluate(
    groups: Communicators,
    windows: FrontierWindows,
    hardware: Hardware,
    cpu: HostCpu,
    roster: Roster,
    messengers: Messengers,
    own: OwnWork,
    devices: DeviceWork,
    hosts: HostWork,
    traced: TracedWork,
    power: DrawnPower,
    stop: Stopped,
    thresholds: Thresholds,
) -> Iterator[Finding]:
    for item in (*devices.found, *hosts.found, *traced.found):
        finding = hardware.refined(finding_of(item), (Cause.COMPUTE_SLOW,), item.slowdown)
        yield doubted(finding, waits_for_cores(cpu, roster, (item.rank,)) if item.on_host else ())
    gates = Gates.of(thresholds)
    first = first_ranks(roster.hosts)
    known = named_once([judged for window in windows if not is_limited(judged := judge(window, gates), gates)])
    alone = is_alone(known, roster.ranks)
    on_device = {culprit.ranks: culprit.stage for judged in known for culprit in judged.attribution.culprits if culprit.device}
    for judged in known:
        sync = judged.attribution.sync
        for culprit in judged.attribution.culprits:
            if _is_known_better(culprit, on_device) or culprit.stage == REST:
                continue
            if culprit.stage == sync and wait_for_another(groups, culprit.ranks):
                continue
            waits = may_wait(culprit, messengers.intersection(judged.matrix.ranks), sync, alone=alone)
            usual = duty_of(culprit, first, gates.most_share_of_first, unstaged=is_unstaged(judged.matrix), sync=sync)
            usual = usual or (wait_of(culprit) if waits else None)
            usual = usual or (_AS_LONG if _works_as_long(culprit, own) else small_of(culprit, gates.least_from_start))
            awaited = wait_for_named(groups, culprit, known)
            usual = usual or (f"{_SHARE} {ranks_text(awaited)}" if awaited else None)
            stated = replace(culprit, ranks=(), changing=True) if waits and usual is None else culprit
            finding = _finding(groups, judged, stated, gates.least_accounted)
            if _is_of_equals(judged, stated, messengers):
                everybody = (*judged.matrix.ranks, *judged.matrix.missing)
                finding = named_by_clocks(named_by_power(finding, power), hardware, everybody)
            if not is_early_in_time(judged, stated):
                finding = hardware.refined(finding, (Cause.COMPUTE_SLOW,))
            small = always_late(stated.share, stated.begins is not None, gates.share_from_start)
            finding = doubted(replace(finding, by_design=usual), (*small, *waits_for_cores(cpu, roster, finding.ranks)))
            sure = usual is None and is_plain(judged, stated, gates) and messengers.isdisjoint(judged.matrix.ranks)
            finding = of_past(finding, stop) if sure else finding
            yield finding
            if finding.ranks and not finding.of_past:
                yield blocked_ranks(set(judged.matrix.ranks) - set(finding.ranks))
    if not any(judged.attribution.culprits for judged in known):
        yield from _by_first_steps(groups, known, power, hardware, messengers, gates.least_accounted)


def _by_first_steps(
    groups: Communicators,
    known: Sequence[WindowVerdict],
    power: DrawnPower,
    hardware: Hardware,
    messengers: Messengers,
    least: float,
) -> Iterator[Finding]:
    """Too few steps came before the change to accuse by them alone; who computes while the others wait shows all the same."""
    for judged in known:
        culprit = longer_than_first(judged)
        if culprit is None or not _is_of_equals(judged, culprit, messengers):
            continue
        finding = named_by_power(_finding(groups, judged, culprit, least), power)
        if finding.ranks:
            few = Evidence("a step or two before the change show little of what is usual", None, supports=False)
            finding = replace(finding, evidence=(*finding.evidence, few))
            yield hardware.refined(finding, (Cause.COMPUTE_SLOW,))
            yield blocked_ranks(set(judged.matrix.ranks) - set(finding.ranks))
            return


def _is_of_equals(judged: WindowVerdict, culprit: Culprit, messengers: Messengers) -> bool:
    """Whether all ranks, which have the same work, are longer since a step where they wait for each other and their devices."""
    is_pass = culprit.stage in _PASSES and culprit.stage == judged.attribution.sync
    lasts = culprit.baseline == "history" and culprit.pattern == "throughout"
    return is_pass and lasts and not culprit.ranks and not culprit.changing and messengers.isdisjoint(judged.matrix.ranks)


def _works_as_long(culprit: Culprit, own: OwnWork) -> bool:
    """Whether times inside calls show that its ranks work as long as their equals: then their hosts waited in that stage.

    A host that is late leaves its device idle, which is no time inside a call either. In a few steps it may have had more data.
    """
    slow = {item.rank for item in own.found}
    stated = bool(culprit.ranks) and not culprit.device and culprit.share >= LEAST_PART
    is_equal = stated and own.compared.issuperset(culprit.ranks) and slow.isdisjoint(culprit.ranks)
    is_few = bool(culprit.ranks) and culprit.steps < _ENOUGH_STEPS
    return is_equal or (is_few and own.seldom_longest.issuperset(culprit.ranks))


def _is_known_better(culprit: Culprit, on_device: Mapping[tuple[int, ...], str]) -> bool:
    """Whether device times of another window tell the pass that launched what the host of these ranks waits for here."""
    stage = on_device.get(culprit.ranks)
    return not culprit.device and culprit.stage in _PASSES and stage in _PASSES and stage != culprit.stage


def _finding(groups: Communicators, judged: WindowVerdict, culprit: Culprit, least: float) -> Finding:
    launched = is_of_device(judged, culprit)
    name = stage_of(judged, culprit, launched=launched)
    on_device = culprit.device or launched
    of_host = culprit.stage in _ON_HOST and not culprit.device
    component = Component.HOST if of_host else Component.COMPUTE if on_device else Component.UNKNOWN
    return Finding(
        ranks=culprit.ranks,
        cause=_cause(groups, judged, culprit, least, launched),
        stage=StageRef(name=name, component=component, step=culprit.begins, substage=culprit.substage),
        belief=Belief.BEHIND_AND_BUSY if culprit.ranks else Belief.GROUP_SYMPTOM,
        confidence=_confidence(judged, culprit),
        evidence=(*_evidence(judged, culprit, launched), *_unaccounted(judged, least)),
        granularity=Granularity.JOB if not culprit.ranks else Granularity.RANK,
        anomaly=Anomaly.FAIL_SLOW,
        impact=Impact(round(culprit.lost_ns), round(culprit.share, 3), culprit.affected, "frontier_gain"),
        since=began(judged, culprit),
        next_steps=stage_advice(culprit),
    )


def _cause(groups: Communicators, judged: WindowVerdict, culprit: Culprit, least: float, launched: bool) -> Cause:
    """What times of the host allow to say: work of a device shows in none of them until the host waits for it.

    The host waits for gradients, so that what is long in a backward pass without device times may be work or communication,
    unless it had `launched` the pass with the others.
    """
    matrix, accounted = judged.matrix, judged.attribution.accounted
    if culprit.stage == EVERYWHERE or (accounted is not None and accounted < least):
        return Cause.UNKNOWN
    if culprit.stage not in _COMPUTES and not culprit.device:
        return CAUSE_OF_STAGE.get(culprit.stage, Cause.HOST_STALL)
    on_device = bool(matrix.device) or matrix.asked or any(group.backend not in HOST_BACKENDS for group in groups)
    if culprit.device or not on_device:
        return Cause.COMPUTE_SLOW
    if launched:
        return Cause.COMPUTE_SLOW
    return Cause.HOST_STALL if culprit.stage != judged.attribution.sync else Cause.UNKNOWN


def _confidence(judged: WindowVerdict, culprit: Culprit) -> Confidence:
    is_sure = (
        not culprit.tied
        and judged.attribution.method in SEEN_MEETINGS
        and culprit.affected >= LIKELY_STEPS
        and not judged.matrix.missing
    )
    return Confidence.LIKELY if culprit.ranks and is_sure else Confidence.SUSPECT


def _evidence(judged: WindowVerdict, culprit: Culprit, launched: bool) -> Iterator[Evidence]:
    found, matrix = judged.attribution, judged.matrix
    path = matrix.path(culprit.ranks[0] if culprit.ranks else None)
    stage = "every stage" if culprit.stage == EVERYWHERE else culprit.stage
    part = f"{stage} ({culprit.substage})" if culprit.substage else stage
    who = ranks_text(culprit.ranks) if culprit.ranks else "changing ranks" if culprit.changing else "all ranks"
    longer = f"{part} took {culprit.typical_ns / 1e6:.1f} ms longer on {who} {_COMPARED[culprit.baseline]}"
    spread = f"in {culprit.affected} of {culprit.steps} steps ({culprit.pattern})"
    without = f"; a step takes {found.step_ns / 1e6:.0f} ms, without that {(found.step_ns - culprit.typical_ns) / 1e6:.0f} ms"
    always = without if culprit.ranks and culprit.pattern == "throughout" and culprit.typical_ns < found.step_ns else ""
    yield Evidence(f"{longer} {spread}: {100 * culprit.share:.0f} % of the group's time{always}", path)
    meet = {
        "collectives": "where their collectives are",
        "arrivals": "where their arrivals were noted",
        "aligned": "all ranks leave it together",
        "regular": "their intervals agree best there",
        "assumed": "assumed",
    }
    yield Evidence(
        f"ranks meet at the end of {found.sync} ({meet[found.method or 'assumed']}); waiting is known from {found.waits}", path
    )
    if culprit.ranks and any(matrix.columns[index].stage == culprit.stage for index in matrix.barriers):
        yield Evidence(f"all leave {culprit.stage} with a barrier, and the host of {who} made that call later", path)
    if culprit.device:
        yield Evidence(f"device time of {culprit.stage} is {culprit.typical_ns / 1e6:.1f} ms above its peers'", path)
    elif culprit.stage in _PASSES and launched:
        yield Evidence(f"hosts had launched {culprit.stage} with the others: what is late is the device", path)
        if is_late_before(judged, culprit):
            early = (
                f"it comes late to the first collective of a step already: work of a pass before {culprit.stage} looks the same"
            )
            yield Evidence(early, path)
    if culprit.steps < _ENOUGH_STEPS:
        yield Evidence(f"only {culprit.steps} steps could be compared: less than a habit shows", path, supports=False)
    if culprit.tied:
        yield Evidence("alone it would win next to nothing: other ranks are as late in other stages", path, supports=False)
    if not culprit.ranks and culprit.stage == found.sync and matrix.missing:
        why = f"{ranks_text(matrix.missing)} left no times of these steps: the others may wait there for what holds them up"
        yield Evidence(why, None, supports=False)
    if found.method == "assumed":
        yield Evidence("where the ranks meet is not seen, and taken to be the backward pass", None, supports=False)
    shares = judged.examined.shares
    if shares is not None:
        listed = ", ".join(f"{stage} {100 * share:.0f} %" for stage, share in zip(judged.examined.stages, shares, strict=True))
        yield Evidence(f"exact account of the exposed time, from each rank's own step mark: {listed}", path)


def _unaccounted(judged: WindowVerdict, least: float) -> Iterator[Evidence]:
    """What the stages named leave over of the time by which steps became longer."""
    if judged.attribution.accounted is not None:
        yield from unexplained(judged.attribution.accounted, "what the stages named lose", least)


def _clears(windows: FrontierWindows, thresholds: Thresholds) -> str | None:
    """Only where a slow rank would have been named: enough steps of all, a meeting that is seen, and no excess left over."""
    gates = Gates.of(thresholds)
    if not windows or any(window.waits is not None and not window.waits.of_all for window in windows):
        return Undecided("how long some ranks waited for others is not recorded")
    judged = [judge(window, gates) for window in windows]
    if limits := [limit for each in judged if (limit := unseen_delay(each, gates)) is not None]:
        return Undecided(limits[0])
    steps = sum(judge(window, gates).attribution.steps for window in longest(windows))
    return f"in {steps} steps no stage cost the group a material part of its time beyond peers and history"


RULE = Rule(
    code="FX170",
    name="stage-slow",
    seed="StageFrontier sections 3 and 4, and windows cut where ranks meet",
    needs=(Need(StageTimes, "stages", "stage times of the steps show where the time went"),),
    thresholds=tuple(Threshold(field.name, float(str(field.default)), REASONS[field.name]) for field in fields(Gates)),
    concludes="The stage that a moving job loses time to, the rank when one recurs, and how much would be won.",
    evaluate=_evaluate,
    clears=_clears,
)
