"""Where in the step each suspect stopped, by the calls of its rank: direction, microbatch, chunk and stage of the pipeline."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from forensics.model import Anomaly, Cause, Component, Evidence, Granularity, StageName, StageRef, Suspect
from forensics.model import Members as Each
from forensics.rules.arbitration import Judgement
from forensics.rules.core_evidence import core_evidence
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.hardware.allowed_cores import AllowedCores
from forensics.rules.reductions.hardware.held_back import CoreTimes
from forensics.rules.reductions.hardware.slow_clocks import SlowClocks, held_down_cores
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.call_place import CallPlace
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.pipeline.halts import Halt, HaltedPass, halt
from forensics.rules.reductions.pipeline.iteration import pass_text
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.text.evidence_text import ranks_text

T = TypeVar("T")
Members = Mapping[str, tuple[int, ...]]
"""Members of each communicator."""
Cut = frozenset[int]
"""Ranks whose record is cut before calls that their counters tell of."""

_OF_PROGRAMS = (
    Cause.EXTRA_OR_MISSING_COLLECTIVE,
    Cause.COLLECTIVE_MISMATCH,
    Cause.SHAPE_MISMATCH,
    Cause.P2P_UNMATCHED,
    Cause.DEADLOCK,
)
_OF_ENDED = (Cause.PYTHON_EXCEPTION, Cause.PROCESS_DEAD)
_REDUCES = re.compile(r"_?all_?reduce|_?reduce_scatter")
_MOST_HALTS = 4
_MESSAGE = re.compile(r"send|recv")
_IN_PASSES = (StageName.UNKNOWN, StageName.FORWARD, StageName.BACKWARD)


def located(
    judged: Judgement, places: CallPlaces, groups: Communicators, layout: Layout, cores: AllowedCores, times: CoreTimes,
    clocks: SlowClocks, roster: Roster,
) -> tuple[Suspect, ...]:  # fmt: skip
    """The suspects, with what their calls tell of the place; what a suspect's own evidence stated already is kept."""
    members = {group.label: group.members for group in groups}
    cut = frozenset(rank for group in groups for rank in group.cut)
    # All at once, for each reading goes through the calls of all ranks.
    stopped = {rank for each in judged.suspects if each.anomaly is Anomaly.FAIL_STOP for rank in each.ranks}
    places.read(rank for chain in layout.pipelines if not stopped.isdisjoint(chain) for rank in chain)
    return tuple(
        _stopped(suspect, places, layout, members, cut, is_shown=number < _MOST_HALTS)
        if suspect.anomaly is Anomaly.FAIL_STOP
        else _clocked(_slow(suspect, layout, members, cores, times), clocks, roster)
        for number, suspect in enumerate(judged.suspects)
    )


def _stopped(suspect: Suspect, places: CallPlaces, layout: Layout, members: Members, cut: Cut, *, is_shown: bool) -> Suspect:
    """A suspect that stopped, with the pass that it stopped in and, where `is_shown`, that at which its pipeline halted."""
    stage = _of_layout(suspect, _reduced(_stage(suspect, places, members, cut), layout, members), layout)
    found = halt(suspect.ranks[0], places, layout) if is_shown and suspect.ranks else None
    own = [each for each in found.passes if set(suspect.ranks) & set(each.ranks)] if found else []
    evidence = (*suspect.evidence, *(_halted(each, found) for each in own if found))
    is_numbered = found is not None and found.microbatches > 1
    return replace(suspect, stage=_turned(stage, own) if is_numbered else stage, evidence=evidence)


def _turned(stage: StageRef, halted: Sequence[HaltedPass]) -> StageRef:
    """The stage with the microbatch that the last stage of a pipeline turns round, where only its direction is open."""
    if len(halted) != 1 or stage.microbatch is not None or stage.name not in _IN_PASSES:
        return stage
    place, behind = halted[0].place, halted[0].behind
    is_same = behind is not None and (behind.microbatch, behind.chunk) == (place.microbatch, place.chunk)
    return replace(stage, microbatch=place.microbatch, model_chunk=place.chunk) if is_same else stage


def _slow(suspect: Suspect, layout: Layout, members: Members, cores: AllowedCores, times: CoreTimes) -> Suspect:
    """A slow suspect, with the pass that its transfer is of, or what its process gets of the cores of its host."""
    is_transfer = suspect.stage.component is Component.COMMUNICATION
    beside = () if is_transfer or suspect.members is not Each.EACH else tuple(core_evidence(suspect.ranks, cores, times))
    advice = (f"give {ranks_text(suspect.ranks)} the cores that the others have, and see who is late then",) if beside else ()
    return replace(
        suspect,
        stage=_reduced(suspect.stage, layout, members),
        evidence=(*suspect.evidence, *beside),
        next_steps=(*advice, *suspect.next_steps),
    )


def _clocked(suspect: Suspect, clocks: SlowClocks, roster: Roster) -> Suspect:
    """A slow suspect with the clocks of the cores of its host, where they are held down."""
    is_known = suspect.members is Each.EACH and suspect.stage.component is not Component.COMMUNICATION
    held = tuple(held_down_cores(suspect.ranks, clocks, roster)) if is_known else ()
    return replace(suspect, evidence=(*suspect.evidence, *held)) if held else suspect


def _halted(each: HaltedPass, found: Halt) -> Evidence:
    """The pass of a suspect at which its pipeline came to a halt."""
    what = (
        "is not complete, and all that it waits for is"
        if each.is_received
        else "has not received its message, which was offered"
    )
    either = f", or {each.behind.direction} of microbatch {each.behind.microbatch} behind it," if each.behind else ""
    passes = f"{found.complete.sum()} of {len(found.complete)} passes of the step are complete"
    return Evidence(f"its pipeline halted where {pass_text(each.place, each.ranks)}{either} {what}; {passes}", None)


def _of_layout(suspect: Suspect, stage: StageRef, layout: Layout) -> StageRef:
    """The stage of the pipeline by names or configuration, where no message tells it."""
    if stage.pipeline_stage is not None:
        return stage
    known = (layout.places.get(rank) for rank in suspect.ranks)
    return replace(stage, pipeline_stage=_agreed(place.stage if place else None for place in known))


def _reduced(stage: StageRef, layout: Layout, members: Members) -> StageRef:
    """A reduction of gradients is of the backward pass, wherever the hosts are by then."""
    same = members.get(stage.communicator or "")
    alike = [label for label, ranks in members.items() if ranks == same] if same else []
    axis = _agreed(
        known.axis for label in alike if (known := layout.axes.get(label)) and known.axis not in (Axis.UNKNOWN, Axis.NONE)
    )
    reduces = stage.operation is not None and _REDUCES.match(stage.operation) is not None
    is_named = stage.name is not StageName.UNKNOWN or stage.component is not Component.COMMUNICATION
    return stage if is_named or axis is not Axis.DATA or not reduces else replace(stage, name=StageName.BACKWARD)


def _stage(suspect: Suspect, places: CallPlaces, members: Members, cut: Cut = frozenset()) -> StageRef:
    if suspect.stage.microbatch is not None:
        return suspect.stage
    if suspect.cause in _OF_PROGRAMS and len(suspect.ranks) == 1:
        # What its peers wait in comes after the call in which its program was another one.
        place = places.of_deviation(suspect.ranks[0])
        if place is not None and place.direction is not None:
            return _filled(replace(suspect.stage, name=StageName.UNKNOWN, direction=None), (place,))
    return _filled(suspect.stage, tuple(_places(suspect, places, members, cut)))


def _places(suspect: Suspect, places: CallPlaces, members: Members, cut: Cut = frozenset()) -> Iterator[CallPlace]:
    """A place for each accused rank that left a record, else those of the ranks that wait for it in the same call.

    A rank that others wait for in a message is in a pass before that message, and which one they do not see. Of a process that
    ended they see how far its device came: its host may have been as far ahead of that as theirs are.
    """
    issued = [rank for rank in suspect.ranks if not _left_out(suspect, rank, places)]
    found = [place for rank in issued if (place := _place(suspect, rank, places, members, cut))]
    # A program that differs may show no pass there: what its peers make at that number is what it should have made.
    differs = suspect.cause in _OF_PROGRAMS and not any(place.in_pass for place in found)
    theirs = tuple(_of_peers(suspect, places, members)) if differs or not found else ()
    yield from found if found and not (theirs and all(place.in_pass for place in theirs)) else theirs


def _left_out(suspect: Suspect, rank: int, places: CallPlaces) -> bool:
    """Whether the suspect's call is one that the rank did not make: under its number it made one of another kind."""
    stage = suspect.stage
    is_numbered = stage.communicator is not None and stage.sequence is not None
    own = places.steps(rank) if suspect.cause is Cause.EXTRA_OR_MISSING_COLLECTIVE and is_numbered else None
    at = own.record.issued(stage.communicator or "", stage.sequence or 0) if own else None
    return own is not None and at is not None and own.record.names.kinds[own.record.kind[at]] != stage.operation


def _of_peers(suspect: Suspect, places: CallPlaces, members: Members) -> Iterator[CallPlace]:
    if not _MESSAGE.match(suspect.stage.operation or ""):
        for rank in sorted({*members.get(suspect.stage.communicator or "", ())} - {*suspect.ranks}):
            place = _of_call(suspect, rank, places, members)
            if place is not None:
                is_open = suspect.cause in _OF_ENDED and _runs_ahead(rank, places)
                yield CallPlace(stage=place.stage) if is_open else replace(place, opens=True)


def _runs_ahead(rank: int, places: CallPlaces) -> bool:
    """Whether the host of a rank has issued calls behind one that has not ended."""
    own = places.steps(rank)
    return own is not None and int((~own.record.done).sum()) > 1


def _place(suspect: Suspect, rank: int, places: CallPlaces, members: Members, cut: Cut) -> CallPlace | None:
    """The call that the suspect is accused for where the rank issued it, else the one that it should make next.

    None where its record is cut before what its counters tell of: it went on, and its peers may show how far.
    A process ended where its host was: behind the call that its peers wait in, where its own record shows that it went on.
    """
    place = _of_call(suspect, rank, places, members)
    ended_later = suspect.cause in _OF_ENDED and place is not None and _went_on(suspect, rank, places, members)
    if (place is not None and not ended_later) or suspect.stage.component is Component.COMMUNICATION:
        return place
    way = str(suspect.stage.name) if suspect.stage.name in (StageName.FORWARD, StageName.BACKWARD) else None
    return None if rank in cut else places.of_stop(rank, way)


def _of_call(suspect: Suspect, rank: int, places: CallPlaces, members: Members) -> CallPlace | None:
    """The place of the suspect's call in the record of a rank, whatever the communicator is called there."""
    stage = suspect.stage
    if stage.operation is not None and _MESSAGE.match(stage.operation):
        return _of_message(suspect, rank, places)
    if stage.communicator is None or stage.sequence is None:
        return None
    label = _label_of(stage.communicator, rank, places, members)
    return places.of_call(rank, label, stage.sequence) if label is not None else None


def _label_of(communicator: str, rank: int, places: CallPlaces, members: Members) -> str | None:
    """What a communicator is called in the record of a rank; None where that is not known."""
    if places.has(rank, communicator):
        return communicator
    same = members.get(communicator)
    twins = [label for label, ranks in members.items() if ranks == same and places.has(rank, label)]
    return twins[0] if len(twins) == 1 else None


def _went_on(suspect: Suspect, rank: int, places: CallPlaces, members: Members) -> bool:
    """Whether the record of a rank holds calls that its host made behind the suspect's."""
    own, stage = places.steps(rank), suspect.stage
    label = _label_of(stage.communicator or "", rank, places, members)
    at = own.record.issued(label, stage.sequence) if own and label and stage.sequence is not None else None
    return own is not None and at is not None and at < len(own.record) - 1


def _of_message(suspect: Suspect, rank: int, places: CallPlaces) -> CallPlace | None:
    """The pass of a message by the record of a rank; by that of its peer, where what was sent could end either pass."""
    if suspect.resource is None or (suspect.granularity is not Granularity.NIC and suspect.ranks != (rank,)):
        return places.of_message(rank, suspect.ranks)
    # Of a NIC that carries nothing the messages of all its peers stop: the first of them is where it did.
    peers = tuple(peer for peer in suspect.resource.peer_ranks if peer not in suspect.ranks)
    own = places.of_message(rank, peers, str(suspect.stage.name))
    if own is not None and own.direction is not None:
        return own
    theirs = next((found for peer in peers if (found := places.of_message(peer, (rank,)))), None)
    return own if theirs is None else replace(theirs, stage=places.stage_of(rank))


def _filled(stage: StageRef, found: tuple[CallPlace, ...]) -> StageRef:
    """The stage with what all places agree on, where it does not contradict the stage that is known."""
    direction = _agreed(place.direction for place in found)
    if stage.name not in _IN_PASSES or (direction and stage.direction and direction != stage.direction):
        return replace(stage, pipeline_stage=_agreed(place.stage for place in found))
    fits = not (direction and stage.name in (StageName.FORWARD, StageName.BACKWARD) and direction != stage.name)
    # Before the call that opens a step a rank may as well load data.
    is_open = stage.name is StageName.UNKNOWN and any(place.opens for place in found)
    direction = direction if fits and not is_open else None
    return replace(
        stage,
        name=StageName(direction) if direction and stage.name is StageName.UNKNOWN else stage.name,
        direction=direction or stage.direction,
        microbatch=_agreed(place.microbatch for place in found) if fits else None,
        model_chunk=_agreed(place.chunk for place in found) if fits else None,
        pipeline_stage=_agreed(place.stage for place in found),
    )


def _agreed(values: Iterable[T | None]) -> T | None:
    """The one value that all have; None where one has none or another."""
    found = set(values)
    return found.pop() if len(found) == 1 else None
