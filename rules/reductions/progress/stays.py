"""How long a rank stayed in a call the last times that it came to the same place of the program, where it seldom comes there.

The pauses of a job tell what is usual between most of its calls. The barrier behind an evaluation or a checkpoint is one call
of hundreds: one long stay there is no pause that recurs, and still what a sound job does at that place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from forensics.rules.reductions.calls.issued import NOWHERE, Issued
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


Stays = Mapping[Place, int]
"""The longest of the one or two earlier stays at each place, in ns; places where the rank never was, or more often, lack."""


def seldom_stays(calls: Issued, places: Iterable[Place]) -> Stays:
    """Return the earlier stays at some places; they are those of communicators, and no messages."""
    joint = calls.collectives()
    return {place: longest for place in dict.fromkeys(places) if (longest := _longest(joint, place))}


def _longest(calls: Issued, place: Place) -> int:
    at = calls.of(place.rank)
    path = NOWHERE if place.call_path is None else place.call_path
    is_here = (calls.communicator[at] == _code(calls.communicators, place.communicator)) & (
        calls.kind[at] == _code(calls.kinds, place.kind)
    )
    # The last call of a rank is the one that it is in: it has not stayed there yet.
    here = np.flatnonzero((is_here & (calls.call_path[at] == path))[:-1])
    if not 0 < len(here) <= SELDOM:
        return 0
    return int(np.diff(calls.enqueued_ns[at])[here].max())


def _code(names: Sequence[str], name: str) -> int:
    """The place of a name; what is found nowhere where there is no such name."""
    return names.index(name) if name in names else len(names)


def places_of(wait: Wait) -> Iterator[Place]:
    """Yield where those who wait are."""
    calls = ((rank, call) for rank, call in wait.waiting.items() if call is not None)
    return (Place(rank, wait.communicator, call.kind, call.call_path) for rank, call in calls)


def stayed_before(wait: Wait, stays: Stays) -> int:
    """How long those who wait were at this place at most when they were there before, in ns; 0 where nothing tells."""
    return max((stays.get(place, 0) for place in places_of(wait)), default=0)
