"""Merge the findings of all rules into one ranking of suspects (design section 4: the order of belief)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from forensics.model import (
    Anomaly,
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
)  # fmt: skip
from forensics.rules.reductions.job import Job
from forensics.rules.reductions.progress.liveness import Motion
from forensics.rules.reductions.waits.graph import RootKind

_BELIEFS = tuple(Belief)
_CONFIDENCES = tuple(Confidence)
# Beliefs that need no proof that the job stands still.
_WITHOUT_STALL = frozenset({Belief.DIRECT_RECORD, Belief.MISMATCH})
_SHOWN_PER_RANK = 4

# A finding with the codes of all rules that came to it.
Explained = tuple[Finding, tuple[str, ...]]


def arbitrate(job: Job, findings: Iterable[Finding]) -> tuple[Suspect, ...]:
    """Rank the roots: faults by their best explanation, alternatives of one fault behind it."""
    roots = [finding for finding in findings if finding.role is Role.ROOT and _admissible(job, finding)]
    merged = _merge_same_cause(_merge_peers(job, roots))
    return tuple(
        _suspect(job, number, finding, rules)
        for number, fault in enumerate(_faults(job, merged), 1)
        for finding, rules in fault
    )


def _admissible(job: Job, finding: Finding) -> bool:
    """Principle 6, abstain rather than guess: what the job's motion does not support accuses nobody."""
    motion = job.liveness.motion
    if finding.anomaly is Anomaly.FAIL_SLOW:
        # What ended steps cost stays true when it is too early to say whether the job goes on.
        return job.liveness.may_move
    if motion is Motion.MOVING:
        return finding.belief is Belief.DIRECT_RECORD and bool(job.waiters(finding.ranks[0]))
    # Who waits for whom is put together from several dumps: only of one moment, or of a job that stands still, is a cycle one.
    if motion is Motion.STALLED or (finding.belief in _WITHOUT_STALL and finding.cause is not Cause.DEADLOCK):
        return True
    return motion is Motion.UNSEEN and _settled(job)


def _settled(job: Job) -> bool:
    """Whether one undated look already has the shape of a hang: everybody waits or is waited for, and most wait.

    In a moving job some ranks are between operations, or still inside one that others have left. One rank alone shows nothing.
    """
    seen = {rank for rank, facts in job.roster.ranks.items() if facts.has_recorder or facts.has_stack}
    waiting = seen & set(job.graph.waits_for)
    awaited = {rank for wait in job.graph.waits for rank in wait.missing}
    kinds = {root.kind for root in job.graph.roots}
    passing = {RootKind.FREE, RootKind.ALL_JOINED} <= kinds
    return len(seen) != 1 and seen <= waiting | awaited and not passing and 2 * len(waiting) >= len(seen)


def _order(finding: Finding) -> tuple[int, int, float, str, tuple[int, ...]]:
    return (
        _BELIEFS.index(finding.belief),
        _CONFIDENCES.index(finding.confidence),
        -finding.strength,
        finding.rule,
        finding.ranks,
    )


def _merge_peers(job: Job, findings: Sequence[Finding]) -> list[Finding]:
    """Single ranks that are at the same fault, for the same waits, become one suspect with several ranks."""
    merged: dict[tuple[object, ...], Finding] = {}
    for finding in sorted(findings, key=_order):
        waits = tuple((w.communicator, w.sequence) for rank in finding.ranks for w in job.graph.waiting_for(rank))
        alone = len(finding.ranks) == 1 and finding.belief is Belief.BEHIND_AND_BUSY
        key = (
            (finding.rule, finding.cause, finding.stage.name, waits) if alone else (finding.rule, finding.cause, finding.ranks)
        )
        held = merged.get(key)
        merged[key] = _joined(held, finding) if held else finding
    return list(merged.values())


def _joined(first: Finding, second: Finding) -> Finding:
    ranks = tuple(sorted({*first.ranks, *second.ranks}))
    evidence = _distinct((*first.evidence, *second.evidence)) if len(ranks) <= _SHOWN_PER_RANK else first.evidence
    weaker = max(first.confidence, second.confidence, key=_CONFIDENCES.index)
    return replace(
        first, ranks=ranks, evidence=evidence, confidence=weaker, granularity=Granularity.GROUP, members=Members.EACH
    )


def _merge_same_cause(findings: Iterable[Finding]) -> list[Explained]:
    """Findings of different rules that agree on ranks and cause become one, with all rules named."""
    merged: dict[tuple[object, ...], Explained] = {}
    for finding in sorted(findings, key=_order):
        key = (finding.ranks, finding.cause)
        if key not in merged:
            merged[key] = (finding, (finding.rule,))
            continue
        best, rules = merged[key]
        evidence = _distinct((*best.evidence, *finding.evidence))
        merged[key] = (replace(best, evidence=evidence), tuple(dict.fromkeys((*rules, finding.rule))))
    return list(merged.values())


def _distinct(evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
    return tuple(dict.fromkeys(evidence))


def _faults(job: Job, merged: Sequence[Explained]) -> list[list[Explained]]:
    """Findings that share a rank explain one fault; a group symptom joins the strongest fault, if there is one.

    So does a silent rank that may as well be a victim of it: it would wait too, if only something showed what it does.
    """
    faults: list[list[Explained]] = []
    for explained in sorted(merged, key=lambda item: _order(item[0])):
        ranks = set(explained[0].ranks)
        home = next((fault for fault in faults if any(ranks & set(finding.ranks) for finding, _ in fault)), None)
        if home is None and explained[0].belief is Belief.GROUP_SYMPTOM and faults:
            home = faults[0]
        if home is None:
            home = next((fault for fault in faults if _may_be_victims(job, ranks, explained[0], fault[0][0])), None)
        if home is None:
            faults.append([explained])
        elif _says_less(job, explained[0], home[0][0]):
            home[0] = _with_symptom(home[0], explained)
        else:
            home.append(explained)
    return faults


def _says_less(job: Job, symptom: Finding, first: Finding) -> bool:
    """Whether a group symptom only says that somebody among its ranks is to blame, where better evidence says who.

    A process that is gone or stopped leaves unfinished operations all around it: in groups of its own, and in those of ranks
    that share one with it.
    """
    if symptom.belief is not Belief.GROUP_SYMPTOM or symptom.anomaly is not first.anomaly:
        return False
    if first.belief is Belief.DIRECT_RECORD and first.confidence is Confidence.CONFIRMED:
        used = [set(group.members) for group in job.groups if group.positions]
        return any(members & set(first.ranks) and members & set(symptom.ranks) for members in used)
    return first.belief is not Belief.GROUP_SYMPTOM and set(first.ranks) < set(symptom.ranks)


def _with_symptom(first: Explained, symptom: Explained) -> Explained:
    """The better finding, with the stage of the operation where it has none of its own and takes part in it."""
    finding, rules = first
    takes_part = set(finding.ranks) <= set(symptom[0].ranks)
    stage = symptom[0].stage if takes_part and finding.stage.name is StageName.UNKNOWN else finding.stage
    evidence = _distinct((*finding.evidence, *symptom[0].evidence[:1]))
    return replace(finding, stage=stage, evidence=evidence), tuple(dict.fromkeys((*rules, *symptom[1])))


def _may_be_victims(job: Job, ranks: set[int], finding: Finding, first: Finding) -> bool:
    """Whether nothing is seen of `ranks`, and each shares a communicator with the ranks of `first` or their waiters."""
    if finding.belief is Belief.DIRECT_RECORD or not all(job.rank(rank).unseen for rank in ranks):
        return False
    held_up = set(first.ranks).union(*(job.waiters(rank) for rank in first.ranks)) - ranks
    used = [set(group.members) for group in job.groups if group.positions]
    return all(any(rank in members and members & held_up for members in used) for rank in ranks)


def _suspect(job: Job, fault: int, finding: Finding, rules: tuple[str, ...]) -> Suspect:
    hosts = {host for rank in finding.ranks if (host := job.roster.host_of(rank))}
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
        confidence=_capped(job, finding),
        rules=rules,
        evidence=finding.evidence,
        next_steps=finding.next_steps,
    )


def _capped(job: Job, finding: Finding) -> Confidence:
    """Nothing but a direct record is confirmed while nothing proves that the job stands still."""
    unproven = job.liveness.motion is not Motion.STALLED and finding.belief is not Belief.DIRECT_RECORD
    return Confidence.LIKELY if unproven and finding.confidence is Confidence.CONFIRMED else finding.confidence
