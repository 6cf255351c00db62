"""How long a rank stayed in a call the last times that it came to the same place of the program, where it seldom comes there.

The pauses of a job tell what is usual between most of its calls. The barrier behind an evaluation or a checkpoint is one call
of hundreds: one long stay there is no pause that recurs, and still what a sound job does at that place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forensics.rules.reductions.calls.issued import NOWHERE, Issued
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.waits.graph import Wait

SELDOM = 2
"""Earlier times at a place up to which the longest counts; of more, the second longest pause of the job has been seen there."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank makes a call: communicator, kind, and the place in the program where the recorder kept it."""

    rank: int
    communicator: str
    kind: str
    call_path: int | None


@dataclass(frozen=True, slots=True)
class SeldomStays:
    """The earlier stays of ranks at the places to which they came once or twice before."""

    calls: Issued

    def longest(self, place: Place) -> int:
        """The longest of the one or two earlier stays at a place, in ns; 0 where the rank came there more often, or never."""
        at = self.calls.of(place.rank)
        path = NOWHERE if place.call_path is None else place.call_path
        is_here = (self.calls.communicator[at] == _code(self.calls.communicators, place.communicator)) & (
            self.calls.kind[at] == _code(self.calls.kinds, place.kind)
        )
        # The last call of a rank is the one that it is in: it has not stayed there yet.
        here = np.flatnonzero((is_here & (self.calls.call_path[at] == path))[:-1])
        if not 0 < len(here) <= SELDOM:
            return 0
        return int(np.diff(self.calls.enqueued_ns[at])[here].max())


def _code(names: Sequence[str], name: str) -> int:
    """The place of a name; what is found nowhere where there is no such name."""
    return names.index(name) if name in names else len(names)


@reduction
def seldom_stays(issued: Issued) -> SeldomStays:
    """Take the calls of all ranks whose stays are asked for: those of communicators that are no messages."""
    return SeldomStays(issued.collectives())


def stayed_before(wait: Wait, stays: SeldomStays) -> int:
    """How long those who wait were at this place at most when they were there before, in ns; 0 where nothing tells."""
    calls = {rank: call for rank, call in wait.waiting.items() if call is not None}
    places = (Place(rank, wait.communicator, call.kind, call.call_path) for rank, call in calls.items())
    return max(map(stays.longest, places), default=0)
