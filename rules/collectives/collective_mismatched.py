"""Members of a communicator issued different operations, or the same with other sizes, under one number."""

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
    Members,
    StageName,
    StageRef,
)
from forensics.rules.interface import Maturity, Rule
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.mismatch.alignments import Partings
from forensics.rules.reductions.mismatch.call_mismatches import MismatchFindings, accused
from forensics.rules.reductions.mismatch.disagreements import BlockingMismatches, Disagreement, Disagreements, vote
from forensics.rules.reductions.mismatch.extra_calls import MismatchedPlaces
from forensics.rules.reductions.mismatch.logged_mismatches import LoggedMismatches
from forensics.rules.reductions.mismatch.racing_threads import Race, Races
from forensics.rules.reductions.stacks.samples import StacksByRank, activity_of
from forensics.rules.reductions.text import evidence_text
from forensics.rules.reductions.text.evidence_text import EvidenceText
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.reductions.waits.graph import RootKind, WaitGraph
from forensics.rules.reductions.waits.unrecorded import call_of

_SHOWN_RANKS = 4


def _evaluate(
    stacks: StacksByRank,
    graph: WaitGraph,
    blocking: BlockingMismatches,
    partings: Partings,
    places: MismatchedPlaces,
    races: Races,
    logged: LoggedMismatches,
    mismatched: MismatchFindings,
    text: EvidenceText,
) -> Iterator[Finding]:
    for mismatch in logged:
        if mismatch.tied:
            continue
        # A watchdog that names no group may speak of another one.
        yield _compared(mismatched, mismatch, Confidence.SUSPECT if mismatch.communicator == "0" else Confidence.LIKELY)
    for communicator, race in races.items():
        yield _raced(text, communicator, race)
    for mismatch in blocking:
        if mismatch.communicator in races:
            continue
        if mismatch.communicator in partings or places.went_elsewhere(mismatch) or places.made_alone(mismatch):
            continue
        yield _compared(mismatched, mismatch, Confidence.LIKELY)
    for root in graph.roots:
        if root.kind is RootKind.ALL_JOINED and not root.waits[0].communicator:
            yield from _from_stacks(stacks, text, root.ranks)


def _compared(mismatched: MismatchFindings, mismatch: Disagreement, confidence: Confidence) -> Finding:
    cause = Cause.COLLECTIVE_MISMATCH if mismatch.kinds_differ else Cause.SHAPE_MISMATCH
    cause = Cause.EXTRA_OR_MISSING_COLLECTIVE if mismatch.shift else cause
    step = f"compare the code that {evidence_text.ranks_text(accused(mismatch))} ran before this call with its peers'"
    return mismatched.finding(mismatch, cause, confidence, step)


def _raced(text: EvidenceText, communicator: str, race: Race) -> Finding:
    """Two threads of each process share a communicator: which comes first is chance, and no rank is at fault alone."""
    ranks = tuple(sorted(race.orders))
    first, _ = race.orders[ranks[0]]
    waits = [wait for wait in text.graph.waits if wait.communicator == communicator]
    return Finding(
        ranks=ranks,
        cause=Cause.COLLECTIVE_MISMATCH,
        stage=StageRef(
            component=Component.COMMUNICATION, operation=first.kind, communicator=communicator, sequence=first.sequence
        ),
        belief=Belief.MISMATCH,
        confidence=Confidence.LIKELY,
        evidence=(
            *_thread_orders(communicator, race),
            *_other_threads(text, ranks),
            *(e for rank in ranks[:_SHOWN_RANKS] for e in text.stack(rank)),
        ),
        granularity=Granularity.GROUP,
        since=text.since(waits),
        next_steps=(
            "give the second thread a process group of its own (dist.new_group; of dcp.async_save: process_group=), "
            "or wait for it before the next collective",
        ),
    )


def _thread_orders(communicator: str, race: Race) -> Iterator[Evidence]:
    """Who made the two calls in which order, the larger camp first."""
    camps: dict[tuple[str, str], list[int]] = {}
    for rank, pair in sorted(race.orders.items()):
        camps.setdefault((pair[0].kind, pair[1].kind), []).append(rank)
    number = next(iter(race.orders.values()))[0].sequence
    for (first, second), ranks in sorted(camps.items(), key=lambda camp: (-len(camp[1]), camp[1])):
        said = f"{evidence_text.ranks_text(ranks)} issued {first} from one thread, then {second} from another"
        yield Evidence(f"{said}, from number {number} of {communicator} on", race.orders[ranks[0]][0].source)


def _other_threads(text: EvidenceText, ranks: tuple[int, ...]) -> Iterator[Evidence]:
    """Where further threads are inside a collective beside the main one."""
    for rank in ranks[:_SHOWN_RANKS]:
        found = text.stacks.get(rank)
        inside = [thread for thread in found.latest_threads() if thread.activity.communicating] if found else []
        for thread in inside[:1]:
            name = f" {thread.name}" if thread.name else ""
            yield Evidence(f"thread{name} of rank {rank} at {thread.activity.describe()}", thread.source)


def _from_stacks(stacks: StacksByRank, text: EvidenceText, ranks: tuple[int, ...]) -> Iterator[Finding]:
    """Without a recorder the stacks still show who called from elsewhere; which call was wrong they do not show."""
    calls = {rank: call for rank in ranks if rank in stacks and (call := call_of(stacks[rank]))}
    majority = vote(calls) if len(calls) == len(ranks) else ()
    odd = tuple(rank for rank in ranks if rank not in majority)
    if not majority or len({calls[rank] for rank in odd}) != 1:
        # In three calls or more are members of several groups: who is alone there may wait for one that has gone on.
        return
    places = {found.stage for rank in odd if (found := activity_of(stacks, rank))}
    yield Finding(
        ranks=odd,
        cause=Cause.COLLECTIVE_MISMATCH,
        stage=StageRef(
            name=places.pop() if len(places) == 1 else StageName.UNKNOWN,
            component=Component.COMMUNICATION,
            operation=calls[odd[0]].split(" at ")[0],
        ),
        belief=Belief.MISMATCH,
        confidence=Confidence.SUSPECT,
        evidence=tuple(e for rank in (*odd[:_SHOWN_RANKS], majority[0]) for e in text.stack(rank)),
        granularity=Granularity.of_ranks(odd),
        # Several may be in a group of their own, where one of them is at fault.
        members=Members.EACH if len(odd) == 1 else Members.ONE_OF,
        next_steps=(
            f"compare the code before this call; a recorder dump would show where {evidence_text.ranks_text(odd)} parted",
        ),
    )


def _clears(seen: Seen, groups: Communicators, mismatches: Disagreements) -> str | None:
    compared = [group for group in groups if len(group.positions) > 1]
    if not compared or mismatches or not seen.calls_of_all:
        return None
    where = evidence_text.counted(len(compared), "communicator")
    return f"kinds, sizes and types agree at every number that was recorded, by all members of {where}"


RULE = Rule(
    code="FX121",
    name="collective-mismatched",
    seed="Flight Recorder practice",
    concludes="The rank whose operation differs from the majority's under the same number; ranks whose threads share a group.",
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
