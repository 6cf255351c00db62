"""The calls of a step that several ranks made together, each with its members."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from forensics.rules.reductions.steps.records import Flags, Ints
from forensics.rules.reductions.steps.times import Floats, StepTimes

LEAST_MEMBERS = 2


@dataclass(frozen=True, slots=True)
class Call:
    """What one member was in a call: its place in the step and in the record, and the ns more than usual."""

    rank: int
    at: int
    place: int
    excess: float


Meetings = Mapping[tuple[int, ...], Sequence[Call]]


def first_of(flags: Flags) -> int:
    """Number of the first call that is flagged; past the last one where none is."""
    return int(flags.argmax()) if flags.any() else len(flags)


def met(times: StepTimes, found: Mapping[int, tuple[Ints, Floats]]) -> Meetings:
    """The calls of the step that several ranks made together, each with its members."""
    met: dict[tuple[int, ...], list[Call]] = defaultdict(list)
    for rank, (places, more) in sorted(found.items()):
        record = times.ranks[rank].record
        keys = zip(record.meetings(places), places.tolist(), more.tolist(), strict=True)
        for at, (key, place, excess) in enumerate(keys):
            met[key].append(Call(rank, at, place, excess))
    return met


def all_there(times: StepTimes, members: Sequence[Call]) -> bool:
    """Whether every member of a call left a record: one that did not may be the one that the others waited for."""
    record = times.ranks[members[0].rank].record
    size = LEAST_MEMBERS if record.is_message[members[0].place] else int(record.members[members[0].place])
    return len(members) >= max(size, LEAST_MEMBERS)


def workers(times: StepTimes, ends: Mapping[int, tuple[Ints, Floats]], members: Sequence[Call]) -> Sequence[Call]:
    """Who may have worked before a call that ended late for all: of a message its sender, as what a pass made is sent next.

    A pass that sends nothing (the forward of the last stage, the backward of the first) lies between two receives: then the
    receiver may have worked as well.
    """
    senders = [call for call in members if times.ranks[call.rank].record.is_send[call.place]]
    receivers = [call for call in members if call not in senders]
    return members if any(_received_before(times, ends, call) for call in receivers) else senders or members


def _received_before(times: StepTimes, ends: Mapping[int, tuple[Ints, Floats]], call: Call) -> bool:
    """Whether what a rank did before it received was to receive from the same rank."""
    record, places = times.ranks[call.rank].record, ends[call.rank][0]
    if not call.at or not record.is_message[call.place]:
        return False
    before = int(places[call.at - 1])
    return bool(record.is_message[before] & ~record.is_send[before] & (record.peer[before] == record.peer[call.place]))
