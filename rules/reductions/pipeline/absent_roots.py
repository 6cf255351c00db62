"""The rank without a record that held up a step: all that waited for nobody before wait in calls of which it is a member.

A missing log hides who was late, not who waited. Where the first waits of a long step are in several calls, and one rank alone
that left no record belongs to each of them, it came late to all of them.
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


def absent_root(
    times: StepTimes, excess: float, inside: Mapping[int, tuple[Ints, Floats]], groups: Members, in_step: Collection[str]
) -> tuple[int, Call] | None:
    """The rank without a record that the first waits have in common, with the first wait that shows it; None without one.

    `excess`: ns that the step was longer. All other ranks must show the step, and one that works `in_step` with it, if there
    are such communicators, must have waited there: who waits for a message passes that on. A message that a rank sends it may
    itself be what was slow: then nobody is named.
    """
    everyone = {rank for members in groups.values() for rank in members}
    if len(everyone - inside.keys()) != 1:
        return None
    waits = {rank: first_of(np.maximum(more, 0.0) >= _WAITS * excess) for rank, (_, more) in inside.items()}
    found = [(call, absent) for call, absent in _of_absent(times, inside, groups) if call.at == waits[call.rank]]
    met_in = {times.ranks[call.rank].record.label(call.place) for call, _ in found}
    if len(met_in) < _LEAST_CALLS or any(_sends(times, call) for call, _ in found):
        return None
    joint = [call for call, _ in found if _is_joint(times, call, in_step)]
    if not joint or joint[0].excess < _WAITS * excess:
        return None
    return found[0][1], min(joint, key=lambda call: (-call.excess, call.rank))


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


def _sends(times: StepTimes, call: Call) -> bool:
    return bool(times.ranks[call.rank].record.is_send[call.place])


def _is_joint(times: StepTimes, call: Call, in_step: Collection[str]) -> bool:
    record = times.ranks[call.rank].record
    return record.label(call.place) in in_step if in_step else not record.is_message[call.place]
