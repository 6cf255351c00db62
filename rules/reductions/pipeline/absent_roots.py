"""The rank without a record that held up a step: all that waited for nobody before wait in calls of which it is a member.

A missing log hides who was late, not who waited. Where the first waits of a long step are in several calls, and one rank alone
that left no record belongs to each of them, it came late to all of them. Of several such ranks one that works in step with a
rank that is there waits for messages together with it: the root is the one that its equal waits for first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from forensics.rules.reductions.pipeline.meetings import Call, first_of, met
from forensics.rules.reductions.steps.records import Ints
from forensics.rules.reductions.steps.times import Floats, StepTimes

_WAITS = 0.5
"""Of the time that the step was longer: who waits for as much in one call waits for the delay."""
_LEAST_CALLS = 2
"""One call alone may have been slow as a transfer."""

Members = Mapping[str, Sequence[int]]
"""Ranks of communicators."""
Equals = Mapping[int, Sequence[int]]
"""Those that a rank works in step with, itself among them."""


def absent_root(
    times: StepTimes, excess: float, inside: Mapping[int, tuple[Ints, Floats]], groups: Members, in_step: Collection[str]
) -> tuple[int, Call] | None:
    """The rank without a record that the first waits have in common, with the first wait that shows it; None without one.

    `excess`: ns that the step was longer. All other ranks must show the step, or have an equal `in_step` that does, and one
    that works in step with it, if there are such communicators, must have waited there: who waits for a message passes that on.
    A message that a rank sends it may itself be what was slow: then nobody is named, unless an equal of the sender waits there,
    too, to send to an equal of the receiver.
    """
    absent = {rank for members in groups.values() for rank in members} - inside.keys()
    equals = {rank: groups[label] for label in in_step for rank in groups[label]}
    if absent & times.ranks.keys() or not all(_is_alone(rank, absent, equals) for rank in absent):
        return None
    waits = {rank: first_of(np.maximum(more, 0.0) >= _WAITS * excess) for rank, (_, more) in inside.items()}
    found = [(call, rank) for call, rank in _of_absent(times, inside, groups) if call.at == waits[call.rank]]
    joint = [(call, rank) for call, rank in found if call.excess >= _WAITS * excess and _is_joint(times, call, in_step)]
    if len({rank for _, rank in joint}) != 1:
        return None
    root = joint[0][1]
    own = [call for call, rank in found if rank == root]
    met_in = {times.ranks[call.rank].record.label(call.place) for call in own}
    may_be_slow = any(_sends_alone(times, call, inside, waits, equals, root) for call in own)
    if len(met_in) < _LEAST_CALLS or may_be_slow or _has_absent_peer(times, root, absent, equals, groups):
        return None
    return root, min((call for call, _ in joint), key=lambda call: (-call.excess, call.rank))


def _is_alone(rank: int, absent: Collection[int], equals: Equals) -> bool:
    """Whether a rank is the only one that is absent, or the only one of several that work in step."""
    return len(absent) == 1 or (len(equals.get(rank, ())) > 1 and {*equals[rank]} & {*absent} == {rank})


def _has_absent_peer(times: StepTimes, rank: int, absent: Collection[int], equals: Equals, groups: Members) -> bool:
    """Whether a message of a rank, by those of its equals, may be with another one that left no record."""
    records = [times.ranks[each].record for each in equals.get(rank, ()) if each in times.ranks]
    peers = {peer for record in records for peer in record.peer[record.is_message].tolist()}
    unseen = {*absent} & _may_exchange(times, rank, groups)
    return any({*equals.get(peer, (peer,))} & unseen for peer in peers)


def _may_exchange(times: StepTimes, rank: int, groups: Members) -> set[int]:
    """Members of the communicators of a rank in which messages are recorded, by whomever."""
    records = [steps.record for steps in times.ranks.values()]
    labels = {
        record.names.communicators[number]
        for record in records
        for number in np.unique(record.communicator[record.is_message]).tolist()
    }
    return {other for label in labels if rank in groups.get(label, ()) for other in groups[label]}


def _of_absent(times: StepTimes, inside: Mapping[int, tuple[Ints, Floats]], groups: Members) -> Iterator[tuple[Call, int]]:
    """Calls of members that are there in which one rank has no record at all, with that rank."""
    for members in met(times, inside).values():
        first = members[0]
        record = times.ranks[first.rank].record
        ends = (first.rank, int(record.peer[first.place]))
        everyone = ends if record.is_message[first.place] else groups.get(record.label(first.place), ())
        absent = {*everyone} - times.ranks.keys()
        if len(absent) == 1:
            yield from ((call, rank) for rank in absent for call in members)


def _sends_alone(
    times: StepTimes, call: Call, inside: Mapping[int, tuple[Ints, Floats]], waits: Mapping[int, int], equals: Equals, root: int
) -> bool:
    """Whether a rank sends in a call, and no equal of it waits there to send to an equal of the root: that came late, too."""
    if not times.ranks[call.rank].record.is_send[call.place]:
        return False
    receivers = {*equals.get(root, ())} - {root}
    beside = [each for each in equals.get(call.rank, ()) if each != call.rank and waits.get(each) == call.at]
    places = [(times.ranks[each].record, int(inside[each][0][call.at])) for each in beside]
    return not any(record.is_send[place] and int(record.peer[place]) in receivers for record, place in places)


def _is_joint(times: StepTimes, call: Call, in_step: Collection[str]) -> bool:
    record = times.ranks[call.rank].record
    return record.label(call.place) in in_step if in_step else not record.is_message[call.place]
