"""One rank issued one collective less, or one more, than its peers, or left out a message."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

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
from forensics.rules.interface import Maturity, Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.mismatch.alignments import Parting, Partings
from forensics.rules.reductions.mismatch.call_mismatches import MismatchFindings
from forensics.rules.reductions.mismatch.disagreements import BlockingMismatches, Disagreement, Disagreements
from forensics.rules.reductions.mismatch.extra_calls import MismatchedPlaces
from forensics.rules.reductions.mismatch.left_out_messages import LeftOut, LeftOutMessages
from forensics.rules.reductions.mismatch.miscounts import Miscount, Miscounts
from forensics.rules.reductions.mismatch.racing_threads import Races
from forensics.rules.reductions.pipeline.call_place import CallPlace
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.ranks.roster import RecordedRanks
from forensics.rules.reductions.stacks.call_paths import CallPath
from forensics.rules.reductions.text import evidence_text
from forensics.rules.reductions.text.evidence_text import EvidenceText
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.reductions.waits.graph import WaitGraph

_WORDS = {
    "missing": "skipped a call that the others made",
    "extra": "made a call that the others did not make",
    "either": "made one call more or less than the others",
    "left": "is already at a later place of the program, so it made fewer calls than the others",
}


def _evaluate(
    graph: WaitGraph,
    blocking: BlockingMismatches,
    partings: Partings,
    miscounts: Miscounts,
    messages: LeftOutMessages,
    passes: CallPlaces,
    places: MismatchedPlaces,
    races: Races,
    mismatched: MismatchFindings,
    text: EvidenceText,
    thresholds: Thresholds,
) -> Iterator[Finding]:
    for mismatch in blocking:
        parting = partings.get(mismatch.communicator)
        how = parting.kind if parting else _how(places, mismatch)
        if how is None or mismatch.communicator in races:
            continue
        who = evidence_text.ranks_text(mismatch.odd)
        what = f"{who} {_WORDS[how]}: find a branch that depends on the rank or its data"
        found = mismatched.finding(mismatch, Cause.EXTRA_OR_MISSING_COLLECTIVE, Confidence.LIKELY, what)
        stage = _left_out(mismatched, mismatch, parting) or found.stage
        yield replace(found, stage=stage, evidence=(*_parting(partings, places, mismatch, how), *found.evidence))
    for miscount in miscounts:
        yield _miscounted(graph, text, miscount, thresholds["least_voters"])
    for left_out in messages:
        yield _unmatched(graph, passes, text, left_out)


def _left_out(mismatched: MismatchFindings, mismatch: Disagreement, parting: Parting | None) -> StageRef | None:
    """The stage of the call that a rank left out, by those who issued it: what the rank issued there instead comes later."""
    call = parting.call if parting and parting.kind == "missing" else None
    if call is None or mismatch.tied:
        return None
    stage = mismatched.stage_of(mismatch, mismatch.majority)
    if call.sequence == mismatch.sequence:
        return stage
    return replace(stage, name=StageName.UNKNOWN, operation=call.kind, sequence=call.sequence, substage=None)


def _miscounted(graph: WaitGraph, text: EvidenceText, found: Miscount, least_voters: float) -> Finding:
    """A call among calls that all look alike: only their number between two others tells."""
    who = evidence_text.ranks_text(found.odd)
    waits = [wait for wait in graph.waits if set(found.odd) & (set(wait.waiting) | set(wait.missing))]
    own = next((wait for wait in waits if set(found.odd) & set(wait.waiting)), None)
    stage = (
        text.joined_stage(own, found.odd, Component.COMMUNICATION)
        if own
        else StageRef(StageName.UNKNOWN, Component.COMMUNICATION)
    )
    return Finding(
        ranks=found.odd,
        cause=Cause.EXTRA_OR_MISSING_COLLECTIVE,
        stage=replace(stage, communicator=found.where),
        belief=Belief.MISMATCH,
        confidence=Confidence.LIKELY if found.as_before or len(found.voters) >= least_voters else Confidence.SUSPECT,
        evidence=(Evidence(_counts(found, who), found.source), *text.stack(found.odd[0])),
        granularity=Granularity.of_ranks(found.odd),
        since=text.since(waits),
        next_steps=(f"{who} {_WORDS[found.kind]}: find a branch that depends on the rank or its data",),
    )


def _unmatched(graph: WaitGraph, passes: CallPlaces, text: EvidenceText, found: LeftOut) -> Finding:
    """A message among messages that all look alike, in the pass in which those that work in step with the rank made it."""
    place = passes.of_call(found.equal, found.communicator, found.sequence) or CallPlace()
    between = f"between numbers {found.anchor - 1} and {found.anchor} of {found.measure}"
    made = f"rank {found.rank} made no {found.kind} with rank {found.peer} {between}, and later ones"
    equal = f"rank {found.equal}, which works in step with it, made one there"
    return Finding(
        ranks=(found.rank,),
        cause=Cause.P2P_UNMATCHED,
        stage=StageRef(
            StageName(place.direction) if place.direction else StageName.UNKNOWN,
            Component.COMMUNICATION,
            direction=place.direction,
            operation=found.kind,
            microbatch=place.microbatch,
            model_chunk=place.chunk,
            pipeline_stage=place.stage,
        ),
        belief=Belief.MISMATCH,
        confidence=Confidence.LIKELY,
        evidence=(Evidence(f"{made}; {equal}", found.source), *text.stack(found.rank)),
        since=text.since([wait for wait in graph.waits if found.rank in wait.missing]),
        next_steps=(f"rank {found.rank} left out a {found.kind}: find a branch that depends on the rank or its data",),
    )


def _counts(found: Miscount, who: str) -> str:
    as_before = ", as before" if found.as_before else ""
    others = evidence_text.ranks_text([rank for rank in found.voters if rank not in found.odd])
    if found.is_open:
        since = f"since number {found.anchor - 1} of {found.measure}, without another call there"
        return (
            f"{who} made {found.made} calls in {found.communicator} {since}; {others} made {found.usual} before it{as_before}"
        )
    between = f"between numbers {found.anchor - 1} and {found.anchor} of {found.measure}"
    return f"{who} made {found.made} calls in {found.communicator} {between}; {others} made {found.usual}{as_before}"


def _how(places: MismatchedPlaces, mismatch: Disagreement) -> str | None:
    if mismatch.shift is not None:
        return mismatch.shift
    if all(mismatch.calls[rank].kind == "barrier" for rank in mismatch.odd) and places.went_elsewhere(mismatch):
        return "left"
    if places.made_alone(mismatch):
        return "extra"
    return "left" if places.went_elsewhere(mismatch) else None


def _parting(partings: Partings, places: MismatchedPlaces, mismatch: Disagreement, how: str) -> Iterator[Evidence]:
    """Name the call that was made too much or left out, with its line and its number."""
    who = evidence_text.ranks_text(mismatch.odd)
    found = partings.get(mismatch.communicator)
    if found is not None and found.kind == "either":
        yield _undecided(places, mismatch, who)
    elif found is not None:
        yield _aligned(places, mismatch, found, who)
    elif how == "extra":
        yield _alone(places, mismatch, who)


def _alone(places: MismatchedPlaces, mismatch: Disagreement, who: str) -> Evidence:
    call, usual = mismatch.calls[mismatch.odd[0]], mismatch.calls[mismatch.majority[0]]
    extra = f"{call.kind}{_at(places.of(mismatch, mismatch.odd[0]))}"
    theirs = f"{usual.kind}{_at(places.of(mismatch, mismatch.majority[0]))}"
    early = ", or left their part of the program early" if places.went_elsewhere(mismatch) else ""
    text = f"{who} issued one extra {extra} before number {mismatch.sequence} of its peers ({theirs}){early}"
    return Evidence(text, call.source)


def _undecided(places: MismatchedPlaces, mismatch: Disagreement, who: str) -> Evidence:
    call, usual = mismatch.calls[mismatch.odd[0]], mismatch.calls[mismatch.majority[0]]
    left_out = f"{usual.kind}{_at(places.of(mismatch, mismatch.majority[0]))}"
    too_much = f"{call.kind}{_at(places.of(mismatch, mismatch.odd[0]))}"
    either = f"{who} left out one {left_out}, or issued one extra {too_much}"
    text = f"{either}, as number {mismatch.sequence}: both fit what follows"
    return Evidence(text, call.source)


def _aligned(places: MismatchedPlaces, mismatch: Disagreement, found: Parting, who: str) -> Evidence:
    extra = found.kind == "extra"
    verb = "issued one extra" if extra else "left out one"
    moved = f"from there on its calls agree with those of rank {mismatch.majority[0]} moved by one"
    if found.call is None:
        where = f"at number {mismatch.sequence} or earlier (the calls before it are alike)"
        return Evidence(f"{who} {verb} call {where}", mismatch.calls[mismatch.odd[0]].source)
    same = found.call.sequence == mismatch.sequence
    place = found.call.place or (places.of(mismatch, found.call.rank) if same else ())
    number = f"as number {found.call.sequence}" if extra else f"that its peers issued as number {found.call.sequence}"
    return Evidence(f"{who} {verb} {found.call.kind}{_at(place)} {number}; {moved}", found.call.source)


def _at(place: CallPath) -> str:
    return f" at {place[0]}" if place else ""


def _clears(seen: Seen, groups: Communicators, mismatches: Disagreements) -> str | None:
    compared = [group for group in groups if len(group.positions) > 1]
    if not compared or not seen.calls_of_all or any(mismatch.shift for mismatch in mismatches):
        return None
    where = evidence_text.counted(len(compared), "communicator")
    return f"no rank's sequence is shifted against its peers, by the records of all members of {where}"


RULE = Rule(
    code="FX120",
    name="collective-skipped",
    seed="Flight Recorder practice",
    needs=(Need(RecordedRanks, "recorder", "operations are compared number by number"),),
    thresholds=(Threshold("least_voters", 4, "ranks that count the calls; of three, two alike are no clear majority"),),
    concludes="The rank whose operations line up with its peers' when moved by one, or whose call they do not make there.",
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
