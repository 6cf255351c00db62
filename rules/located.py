"""Where in the step each suspect stopped, by the calls of its rank: direction, microbatch, chunk and stage of the pipeline."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from forensics.model import Anomaly, Cause, Component, Evidence, StageName, StageRef, Suspect
from forensics.model import Members as Each
from forensics.rules.arbitration import Judgement
from forensics.rules.core_evidence import core_evidence
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.hardware.allowed_cores import AllowedCores
from forensics.rules.reductions.hardware.held_back import CoreTimes
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.call_places import CallPlace, CallPlaces
from forensics.rules.reductions.pipeline.halts import halt
from forensics.rules.reductions.pipeline.iteration import pass_text
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.text.evidence_text import ranks_text

T = TypeVar("T")
Members = Mapping[str, tuple[int, ...]]
"""Members of each communicator."""

_OF_PROGRAMS = (
    Cause.EXTRA_OR_MISSING_COLLECTIVE,
    Cause.COLLECTIVE_MISMATCH,
    Cause.SHAPE_MISMATCH,
    Cause.P2P_UNMATCHED,
    Cause.DEADLOCK,
)
_REDUCES = re.compile(r"_?all_?reduce|_?reduce_scatter")
_MOST_HALTS = 4
_MESSAGE = re.compile(r"send|recv")
_IN_PASSES = (StageName.UNKNOWN, StageName.FORWARD, StageName.BACKWARD)


def located(
    judged: Judgement, places: CallPlaces, groups: Communicators, layout: Layout, cores: AllowedCores, times: CoreTimes
) -> tuple[Suspect, ...]:
    """The suspects, with what their calls tell of the place; what a suspect's own evidence stated already is kept."""
    members = {group.label: group.members for group in groups}
    # All at once, for each reading goes through the calls of all ranks.
    stopped = {rank for each in judged.suspects if each.anomaly is Anomaly.FAIL_STOP for rank in each.ranks}
    places.read(rank for chain in layout.pipelines if not stopped.isdisjoint(chain) for rank in chain)
    return tuple(
        replace(
            suspect,
            stage=_of_layout(suspect, _reduced(_stage(suspect, places, members), layout, members), layout),
            evidence=(*suspect.evidence, *(_halted(suspect, places, layout) if number < _MOST_HALTS else ())),
        )
        if suspect.anomaly is Anomaly.FAIL_STOP
        else _slow(suspect, layout, members, cores, times)
        for number, suspect in enumerate(judged.suspects)
    )


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


def _halted(suspect: Suspect, places: CallPlaces, layout: Layout) -> Iterator[Evidence]:
    """The pass of a suspect at which its pipeline came to a halt; nothing where the pipeline did elsewhere."""
    found = halt(suspect.ranks[0], places, layout) if suspect.ranks else None
    for each in found.passes if found else ():
        if found and set(suspect.ranks) & set(each.ranks):
            what = (
                "is not complete, and all that it waits for is"
                if each.is_received
                else "has not received its message, which was offered"
            )
            passes = f"{found.complete} of {found.of} passes of the step are complete"
            yield Evidence(f"its pipeline halted where {pass_text(each.place, each.ranks)} {what}; {passes}", None)


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


def _stage(suspect: Suspect, places: CallPlaces, members: Members) -> StageRef:
    if suspect.cause in _OF_PROGRAMS and len(suspect.ranks) == 1:
        # What its peers wait in comes after the call in which its program was another one.
        place = places.of_deviation(suspect.ranks[0])
        if place is not None and place.direction is not None:
            return _filled(replace(suspect.stage, name=StageName.UNKNOWN, direction=None), (place,))
    return _filled(suspect.stage, tuple(_places(suspect, places, members)))


def _places(suspect: Suspect, places: CallPlaces, members: Members) -> Iterator[CallPlace]:
    """A place for each accused rank that left a record, else those of the ranks that wait for it in the same call."""
    found = [place for rank in suspect.ranks if (place := _place(suspect, rank, places, members))]
    yield from found
    if not found:
        for rank in members.get(suspect.stage.communicator or "", ()):
            place = _of_call(suspect, rank, places, members)
            if place is not None:
                yield replace(place, opens=True)


def _place(suspect: Suspect, rank: int, places: CallPlaces, members: Members) -> CallPlace | None:
    """The call that the suspect is accused for where the rank issued it, else the one that it should make next."""
    place = _of_call(suspect, rank, places, members)
    if place is not None or suspect.stage.component is Component.COMMUNICATION:
        return place
    way = str(suspect.stage.name) if suspect.stage.name in (StageName.FORWARD, StageName.BACKWARD) else None
    return places.of_stop(rank, way)


def _of_call(suspect: Suspect, rank: int, places: CallPlaces, members: Members) -> CallPlace | None:
    """The place of the suspect's call in the record of a rank, whatever the communicator is called there."""
    stage = suspect.stage
    if stage.operation is not None and _MESSAGE.match(stage.operation):
        return _of_message(suspect, rank, places)
    if stage.communicator is None or stage.sequence is None:
        return None
    place = places.of_call(rank, stage.communicator, stage.sequence)
    if place is not None or places.has(rank, stage.communicator):
        return place
    same = members.get(stage.communicator)
    twins = [label for label, ranks in members.items() if ranks == same and places.has(rank, label)]
    return places.of_call(rank, twins[0], stage.sequence) if len(twins) == 1 else None


def _of_message(suspect: Suspect, rank: int, places: CallPlaces) -> CallPlace | None:
    """The pass of a message by the record of a rank; by that of its peer, where what was sent could end either pass."""
    if suspect.resource is None or suspect.ranks != (rank,):
        return places.of_message(rank, suspect.ranks)
    own = places.of_message(rank, suspect.resource.peer_ranks)
    if own is not None and own.direction is not None:
        return own
    theirs = next((found for peer in suspect.resource.peer_ranks if (found := places.of_message(peer, (rank,)))), None)
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
