"""Merge the findings of all rules into ranked suspects, and keep how each was assessed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from forensics.model import (
    Anomaly,
    Assessment,
    Belief,
    Cause,
    Confidence,
    Evidence,
    Finding,
    Granularity,
    Members,
    Role,
    StageName,
    Suspect,
    Symptom,
)
from forensics.rules.admission import Progress, is_still, withheld
from forensics.rules.explain import (
    Hypothesis,
    Observed,
    agree,
    by_cause,
    faults,
    hypothesis,
    is_silent,
    less_specific,
    less_telling,
)
from forensics.rules.facts.symptoms import Findings, Symptoms
from forensics.rules.reductions.text.evidence_text import counted, ranks_text
from forensics.rules.reductions.waits.combined_positions import Positions
from forensics.rules.reductions.waits.graph import WaitGraph
from forensics.rules.restated import leaves_open, names_one_of, says_less

_BELIEFS = tuple(Belief)
_CONFIDENCES = tuple(Confidence)
_SHOWN_UNEXPLAINED = 6
_SHOWN_PER_RANK = 4
# A slow way between two NICs, and which part of it is slow.
_NARROWER = ((Cause.NETWORK_SLOW, Cause.NIC_OR_PCIE_SLOW), (Cause.NETWORK_SLOW, Cause.PCIE_DEGRADED))
# A GPU that takes and hands over chunks late slows its links as well.
_SHOWN_AS = (("slow_flow", "late_end"),)

# A finding with the codes of all rules that came to it.
Explained = tuple[Finding, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The ranked suspects, what was observed, and how each hypothesis was assessed, also those that accuse nobody."""

    suspects: tuple[Suspect, ...]
    symptoms: tuple[Symptom, ...]
    assessments: tuple[Assessment, ...]


def arbitrate(findings: Findings, observed: Observed, progress: Progress, placed: Positions) -> Judgement:
    """Rank the roots by how much they explain."""
    roots = [finding for finding in findings if finding.role is Role.ROOT]
    late = {rank for finding in roots if finding.anomaly is Anomaly.FAIL_SLOW for rank in finding.ranks}
    reasons = _apart(roots, [withheld(progress, finding, observed, late) for finding in roots])
    admitted = [finding for finding, reason in zip(roots, reasons, strict=True) if reason is None]
    merged = _merge_agreeing(_merge_peers(progress.graph, admitted))
    ranked = [
        _absorbed(_narrowed(by_cause(fault)))
        for fault in faults((hypothesis(*each, observed) for each in merged), observed.unseen)
    ]
    numbered = [
        (number, each, _settled(each, fault[0], observed.unseen)) for number, fault in enumerate(ranked, 1) for each in fault
    ]
    refused = [
        _assessed(hypothesis(finding, (finding.rule,), observed), observed.symptoms, reason=reason)
        for finding, reason in zip(roots, reasons, strict=True)
        if reason is not None
    ]
    return Judgement(
        tuple(_suspect(number, each, progress, placed) for number, each, reason in numbered if reason is None),
        observed.symptoms.found,
        (
            *(_assessed(each, observed.symptoms, None if reason else number, reason) for number, each, reason in numbered),
            *refused,
        ),
    )


def _apart(roots: Sequence[Finding], reasons: Sequence[str | None]) -> list[str | None]:
    """The reasons, where who was slow before a standstill is said beside who holds the job up, and not in place of that."""
    is_named = any(why is None and not each.of_past for each, why in zip(roots, reasons, strict=True))
    open_ = "nobody is named for the standstill, and who was slow before is another question"
    return [open_ if each.of_past and not is_named else why for each, why in zip(roots, reasons, strict=True)]


def _settled(each: Hypothesis, first: Hypothesis, unseen: Collection[int]) -> str | None:
    """Why an alternative of a fault accuses nobody: nothing speaks against the first, which explains all of it, and more."""
    whom = ranks_text(first.finding.ranks) if first.finding.ranks else "the first account"
    if each.finding.belief is Belief.DIRECT_RECORD or not each.explains < first.explains:
        return None
    if not each.explains:
        return f"it explains nothing that was observed, {whom} {len(first.explains)} of it"
    if first.contradictions or not first.families or (first.restates and not is_silent(each, unseen)):
        return None
    more = counted(len(first.explains) - len(each.explains), "more observation")
    return f"{whom} explains all that this does, and {more}"


def _narrowed(fault: list[Hypothesis]) -> list[Hypothesis]:
    """A fault whose first hypothesis leaves open which rank or which part of a link is slow, and another tells: both as one."""
    first, rest = fault[0], fault[1:]
    better = next((each for each in rest if _is_narrowed(first, each)), None)
    if better is None:
        return fault
    rules, evidence = (*better.rules, *first.rules), _distinct((*better.finding.evidence, *first.finding.evidence[:1]))
    both = replace(
        better, finding=replace(better.finding, evidence=evidence), rules=tuple(dict.fromkeys(rules)),
        waits=better.waits | first.waits, others=better.others | first.others, families=better.families | first.families,
    )  # fmt: skip
    return [both, *(each for each in rest if each is not better)]


def _is_narrowed(each: Hypothesis, better: Hypothesis) -> bool:
    """Whether the better one names one of those ranks, or a narrower cause, for the same mechanism, by another family.

    It has to explain what all others wait for. The one that is slow waits for nobody: as long as it is not known which that is,
    what its own ranks do is no account of it.
    """
    open_, named = each.finding, better.finding
    narrower = named.members is Members.EACH and named.ranks == open_.ranks and (open_.cause, named.cause) in _NARROWER
    if not (names_one_of(named, open_) or narrower):
        return False
    slow = open_.anomaly is named.anomaly is Anomaly.FAIL_SLOW
    states = tuple(each.mechanism.state if each.mechanism else None for each in (open_, named))
    alike = states[0] is not None and (states[0] == states[1] or states in _SHOWN_AS)
    distinguished = bool(better.families - each.families) and not better.contradictions
    of_others = {atom for atom in each.explains if atom[1] not in open_.ranks}
    return bool(slow and alike and distinguished and better.explains) and of_others <= better.explains


def _assessed(each: Hypothesis, seen: Symptoms, fault: int | None = None, reason: str | None = None) -> Assessment:
    found, explained = enumerate(seen.found), each.explains
    left = [symptom.text for place, symptom in found if any((place, rank) not in explained for rank in symptom.ranks)]
    return Assessment(
        ranks=each.finding.ranks,
        cause=each.finding.cause,
        stage=each.finding.stage.name,
        confidence=each.finding.confidence,
        rules=each.rules,
        explains=len(explained),
        leaves=seen.count - len(explained),
        unexplained=tuple(left[:_SHOWN_UNEXPLAINED]),
        contradicted_by=each.contradictions,
        families=tuple(sorted(each.families)),
        evidence=each.finding.evidence,
        fault=fault,
        withheld=reason,
    )


def _merge_order(finding: Finding) -> tuple[object, ...]:
    belief, confidence = _BELIEFS.index(finding.belief), _CONFIDENCES.index(finding.confidence)
    return belief, confidence, *less_specific(finding), finding.rule, finding.ranks


def _merge_peers(graph: WaitGraph, findings: Iterable[Finding]) -> list[Finding]:
    """Single ranks that are at the same fault, for the same waits and since the same step, become one suspect with several."""
    merged: dict[tuple[object, ...], Finding] = {}
    for finding in sorted(findings, key=_merge_order):
        waits = tuple((w.communicator, w.sequence) for rank in finding.ranks for w in graph.waiting_for(rank))
        alone = len(finding.ranks) == 1 and finding.belief is Belief.BEHIND_AND_BUSY
        shared = (finding.stage.name, finding.stage.step, waits) if alone else finding.ranks
        key = (finding.rule, finding.cause, shared)
        held = merged.get(key)
        merged[key] = _joined(held, finding) if held else finding
    return list(merged.values())


def _joined(first: Finding, second: Finding) -> Finding:
    ranks = tuple(sorted({*first.ranks, *second.ranks}))
    evidence = _distinct((*first.evidence, *second.evidence)) if len(ranks) <= _SHOWN_PER_RANK else first.evidence
    weaker = max(first.confidence, second.confidence, key=_CONFIDENCES.index)
    if first.ranks == second.ranks:
        return replace(first, evidence=evidence, confidence=weaker)
    return replace(
        first, ranks=ranks, evidence=evidence, confidence=weaker, granularity=Granularity.GROUP, members=Members.EACH
    )


def _merge_agreeing(findings: Iterable[Finding]) -> list[Explained]:
    """Findings of different rules that one fault of the same ranks explains become one, with all rules named.

    Its cause is that of what says why, unless something was read against that alone.
    """
    merged: dict[tuple[int, ...], list[Explained]] = defaultdict(list)
    for finding in sorted(findings, key=lambda each: (*less_telling(each), *_merge_order(each))):
        held = merged[finding.ranks]
        place = next((place for place, (best, _) in enumerate(held) if agree(best, finding)), None)
        if place is None:
            held.append((finding, (finding.rule,)))
        else:
            held[place] = _both(*held[place], finding)
    return [each for held in merged.values() for each in held]


def _both(best: Finding, rules: tuple[str, ...], finding: Finding) -> Explained:
    """The better finding with the evidence of another one, and with its stage and mechanism where it has none of its own."""
    stage, other = best.stage, finding.stage
    if stage.name is StageName.UNKNOWN:
        known = replace(stage, name=other.name, substage=other.substage)
        # Who is in an operation that the better one does not know of.
        known = other if stage.operation is None and stage.component is other.component else known
        stage = replace(known, step=stage.step or other.step)
    evidence = _distinct((*best.evidence, *finding.evidence))
    merged = replace(best, stage=stage, evidence=evidence, mechanism=best.mechanism or finding.mechanism)
    return merged, tuple(dict.fromkeys((*rules, finding.rule)))


def _distinct(evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
    return tuple(dict.fromkeys(evidence))


def _absorbed(fault: list[Hypothesis]) -> list[Hypothesis]:
    """A fault in which what says no more than its first hypothesis is evidence of that one: group symptoms, an open link."""
    first, kept = fault[0], []
    for each in fault[1:]:
        if says_less(each, first) or _is_narrowed(each, first) or leaves_open(each, first):
            first = _with_symptom(first, each)
        else:
            kept.append(each)
    return [first, *kept]


def _with_symptom(first: Hypothesis, symptom: Hypothesis) -> Hypothesis:
    """The better hypothesis, with the stage of the operation where it has none of its own and takes part in it."""
    takes_part = set(first.finding.ranks) <= set(symptom.finding.ranks)
    unknown = first.finding.stage.name is StageName.UNKNOWN
    stage = symptom.finding.stage if takes_part and unknown else first.finding.stage
    evidence = _distinct((*first.finding.evidence, *symptom.finding.evidence[:1]))
    finding = replace(first.finding, stage=stage, evidence=evidence)
    return replace(first, finding=finding, rules=tuple(dict.fromkeys((*first.rules, *symptom.rules))))


def _suspect(fault: int, each: Hypothesis, progress: Progress, placed: Positions) -> Suspect:
    finding, rules = each.finding, each.rules
    hosts = {host for rank in finding.ranks if (host := progress.roster.host_of(rank))}
    return Suspect(
        fault=fault,
        ranks=finding.ranks,
        members=finding.members,
        hosts=tuple(sorted(hosts)),
        granularity=finding.granularity,
        resource=finding.resource,
        anomaly=finding.anomaly,
        stage=finding.stage,
        cause=finding.cause,
        mechanism=finding.mechanism,
        impact=finding.impact,
        since=finding.since,
        confidence=_capped(finding, progress, placed),
        rules=rules,
        evidence=finding.evidence,
        next_steps=finding.next_steps,
        processes=progress.roster.guessed(finding.ranks),
    )


def _capped(finding: Finding, progress: Progress, placed: Positions) -> Confidence:
    """Nothing but a direct record is confirmed while nothing proves a standstill, and contradicted places weaken the word."""
    if finding.belief is Belief.DIRECT_RECORD:
        return finding.confidence
    still, apart = is_still(progress, finding), progress.settled.apart.issuperset(finding.ranks)
    # Of several that are behind in one capture each may be on its way.
    unproven = Confidence.SUSPECT if finding.ranks and apart else Confidence.LIKELY
    least = _CONFIDENCES.index(Confidence.CONFIRMED if still else unproven)
    contradicted = placed.contradicts(finding.ranks, finding.stage.communicator)
    return _CONFIDENCES[min(max(least, _CONFIDENCES.index(finding.confidence)) + contradicted, len(_CONFIDENCES) - 1)]
