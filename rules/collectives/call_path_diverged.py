"""Members of a communicator came to one operation from different places of the program and are stuck in it."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import (
    Belief,
    Cause,
    Component,
    Confidence,
    Evidence,
    Finding,
    Granularity,
    StageName,
    StageRef,
)
from forensics.rules.interface import Maturity, Rule
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.calls.semantics import ROOTED
from forensics.rules.reductions.mismatch.divergences import MAJORITY, Divergence, Divergences
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.stacks.call_paths import CallPath, CallPaths, Frame
from forensics.rules.reductions.stacks.samples import StacksByRank, activity_of
from forensics.rules.reductions.text import evidence_text
from forensics.rules.reductions.text.evidence_text import EvidenceText
from forensics.rules.reductions.waits.graph import WaitGraph

_SHIFTS = {
    "missing": "its next places are those of its peers one number later: it left a call out",
    "extra": "its next place is where its peers are now: it made a call too much",
}


def _evaluate(
    stacks: StacksByRank,
    graph: WaitGraph,
    groups: Communicators,
    divergences: Divergences,
    liveness: Liveness,
    text: EvidenceText,
) -> Iterator[Finding]:
    still = liveness.motion is Motion.STALLED
    # A stack belongs to the call that a dump shows only where nothing moved between the two.
    for found in (each for each in divergences if each.recorded or still):
        yield _finding(stacks, graph, groups, text, found)


def _finding(stacks: StacksByRank, graph: WaitGraph, groups: Communicators, text: EvidenceText, found: Divergence) -> Finding:
    who = evidence_text.ranks_text(found.odd)
    waits = [wait for wait in graph.waits if wait.communicator == found.communicator]
    place = str(_telling(found, found.odd[0]))
    return Finding(
        ranks=found.odd,
        cause=Cause.EXTRA_OR_MISSING_COLLECTIVE if found.shift else Cause.COLLECTIVE_MISMATCH,
        stage=_stage(stacks, found),
        belief=Belief.MISMATCH,
        confidence=_confidence(groups, found),
        evidence=tuple(_evidence(text, found)),
        granularity=Granularity.of_ranks(found.odd),
        since=text.since(waits),
        next_steps=(f"see why {who} came to {place}: a branch that depends on the rank or its data, or another root",),
    )


def _confidence(groups: Communicators, found: Divergence) -> Confidence:
    """A root may call from a line of its own in the same function; a caller that differs alone is a weak sign."""
    members = next((len(group.members) for group in groups if group.label == found.communicator), 0)
    usual, odd = found.calls[found.majority[0]], found.calls[found.odd[0]]
    root_branch = usual.kind in ROOTED and len(found.odd) == 1 and _function(usual.place[0]) == _function(odd.place[0])
    if root_branch or not found.innermost or len(found.majority) < MAJORITY * members:
        return Confidence.SUSPECT
    return Confidence.LIKELY


def _function(entry: Frame) -> tuple[str, str]:
    return entry.module, entry.name


def _stage(stacks: StacksByRank, found: Divergence) -> StageRef:
    stages = {activity.stage for rank in found.odd if (activity := activity_of(stacks, rank))} - {StageName.UNKNOWN}
    return StageRef(
        name=stages.pop() if len(stages) == 1 else StageName.UNKNOWN,
        component=Component.COMMUNICATION,
        operation=found.calls[found.odd[0]].kind,
        communicator=found.communicator,
        sequence=found.sequence,
        substage=str(_telling(found, found.odd[0])),
    )


def _evidence(text: EvidenceText, found: Divergence) -> Iterator[Evidence]:
    kind = found.calls[found.majority[0]].kind
    others = f"the other {len(found.majority)}" if len(found.majority) > 1 else "the other"
    for place, ranks in _camps(found):
        verb = "calls" if len(ranks) == 1 else "call"
        seen = f"{evidence_text.ranks_text(ranks)} {verb} {kind} at {place}"
        usual = f"{others} at {_telling(found, found.majority[0])}"
        yield Evidence(f"{seen}; {usual} (number {found.sequence} of {found.communicator})", found.calls[ranks[0]].source)
    if found.shift:
        yield Evidence(_SHIFTS[found.shift], found.calls[found.odd[0]].source)
    if found.stuck_at != found.sequence:
        yield Evidence(f"their paths differ from there up to number {found.stuck_at}, in which they are stuck", None)
    if found.recorded:
        yield Evidence("these two places never met under one number before that everybody got past", None)
    else:
        yield Evidence("the recorder kept no call paths: the stacks of the ranks in the operation show the places", None)
    for rank in found.odd[:4]:
        yield from text.stack(rank)


def _camps(found: Divergence) -> list[tuple[str, list[int]]]:
    """Odd ranks by the place that tells them from the majority."""
    camps: dict[str, list[int]] = {}
    for rank in found.odd:
        camps.setdefault(str(_telling(found, rank)), []).append(rank)
    return sorted(camps.items(), key=lambda item: item[1])


def _telling(found: Divergence, rank: int) -> Frame:
    """The line of the call; where that is the same, the innermost caller that differs from the majority's or the odd rank's."""
    place = found.calls[rank].place
    other = found.calls[found.majority[0] if rank in found.odd else found.odd[0]].place
    return place[0] if found.innermost else _first_difference(place, other)


def _first_difference(place: CallPath, other: CallPath) -> Frame:
    known = {_function(entry) for entry in other}
    return next((entry for entry in place if _function(entry) not in known), place[-1])


def _clears(graph: WaitGraph, groups: Communicators, divergences: Divergences, paths: CallPaths) -> str | None:
    """Only where every member's place is known, in an operation that all joined."""
    joined = [wait for wait in graph.waits if wait.communicator and not wait.missing]
    members = {group.label: set(group.members) for group in groups}
    placed = [{rank for rank, op in wait.waiting.items() if op and paths.get(op.call_path or 0)} for wait in joined]
    whole = [members.get(wait.communicator) == ranks for wait, ranks in zip(joined, placed, strict=True)]
    if divergences or not joined or not all(whole):
        return None
    return "everybody in the operations that all joined came from one place"


RULE = Rule(
    code="FX122",
    name="call-path-diverged",
    seed="Flight Recorder practice",
    concludes="The few ranks that entered a stuck operation from another place of the program than two thirds of its members.",
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
