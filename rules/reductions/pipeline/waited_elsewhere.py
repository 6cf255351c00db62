"""Which part of its lateness to ranks in step with it a rank spent inside collectives with others.

Ranks of a tensor-parallel group do the same work at the same time, but reduce their gradients each with replicas of its own and
over a NIC of its own. A slow NIC anywhere in such a ring holds up all of its members: each of them comes late to its own
tensor-parallel group, and none of them worked for longer (Mycroft section 5.4: what a fault in one communicator does to those
that overlap with it). Times inside calls are on the clock of each rank. Who works longer is inside other collectives for
shorter, as the others are there before it. Messages do not count: receives are posted beforehand, and last while a rank is in
other calls.
"""

from __future__ import annotations

import numpy as np

from forensics.rules.reductions.arrivals.lateness import LEAST_GAP_NS, Lateness
from forensics.rules.reductions.pipeline.equals import is_of_equals
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.pipeline.own_work import below_others
from forensics.rules.reductions.steps.records import Flags, Ints
from forensics.rules.reductions.steps.times import Floats, Steps, StepTimes

# Of a typical lateness: steps in which the group waited for the rank.
_LATE = 0.5
# Of the calls of a tensor-parallel group, and how many: a message that comes late delays one call of a pass.
_OFTEN, _MOST_CALLS, _LEAST_CALLS = 0.9, 0.5, 50
_MOST_ELSEWHERE = 0.5


def arose_in_itself(late: Lateness, layout: Layout, times: StepTimes) -> bool:
    """Whether it is late to its equals in nearly all calls of each pass, and not by what it waits for elsewhere."""
    often = late.late >= _OFTEN * late.calls and late.calls >= _LEAST_CALLS
    return often and is_of_equals(late, layout) and waited_elsewhere(late, times) < _MOST_ELSEWHERE


def is_late_in_passes(late: Lateness, layout: Layout) -> bool:
    """Whether it is late to most calls of its equals in each pass: what a host does between passes delays one of these."""
    return late.late >= _MOST_CALLS * late.calls and late.calls >= _LEAST_CALLS and is_of_equals(late, layout)


def waited_elsewhere(late: Lateness, times: StepTimes) -> float:
    """The part of its lateness for which a rank was inside calls with others, longer than those that it is late to.

    0 where steps or times of one of them are not known.
    """
    members = [times.ranks[rank] for rank in late.members if rank in times.ranks]
    if len(members) < len(late.members):
        return 0.0
    common = set.intersection(*(set(steps.number.tolist()) for steps in members))
    inside = [_inside(steps, np.array(sorted(common), np.int64), late.communicator) for steps in members]
    within, in_all = (np.stack([each[place] for each in inside]) for place in (0, 1))
    at = late.members.index(late.rank)
    awaited, works_longer = below_others(within)[at], below_others(in_all)[at]
    chosen = awaited >= max(LEAST_GAP_NS, _LATE * late.typical_ns)
    if not chosen.any() or np.isnan(works_longer[chosen]).any():
        return 0.0
    return float(np.clip(1 - works_longer[chosen].sum() / awaited[chosen].sum(), 0.0, 1.0))


def _inside(steps: Steps, numbers: Ints, communicator: str) -> tuple[Floats, Floats]:
    """ns of a rank in collectives of a communicator, and in all collectives, by step."""
    record, places = steps.record, steps.order[0]
    durations = steps.of(record.duration_ns)[np.isin(steps.number, numbers)]
    names = record.names.communicators
    own: Flags = np.array([names[code] == communicator for code in record.communicator[places].tolist()], np.bool_)
    return durations[:, own].sum(axis=1), durations[:, ~record.is_message[places]].sum(axis=1)
