"""How long a rank stayed in a call the last times that it came to the same place of the program, where it seldom comes there.

The pauses of a job tell what is usual between most of its calls. The barrier behind an evaluation or a checkpoint is one call
of hundreds: one long stay there is no pause that recurs, and still what a sound job does at that place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NewType

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


SeldomStays = NewType("SeldomStays", Mapping[Place, int])
"""The longest of the one or two earlier stays at a place, in ns; places to which a rank came more often are not there."""


@reduction
def seldom_stays(issued: Issued) -> SeldomStays:
    """Find the stays of all ranks at places to which they seldom come."""
    calls = issued.collectives()
    stays, is_followed = calls.stays()
    rows = calls.seldom(SELDOM, is_followed)
    columns = (calls.rank, calls.communicator, calls.kind, calls.call_path, stays)
    longest: dict[Place, int] = {}
    for rank, communicator, kind, path, stay in zip(*(column[rows].tolist() for column in columns), strict=True):
        kind_name = issued.kinds[kind] if kind >= 0 else ""
        place = Place(rank, issued.communicators[communicator], kind_name, None if path == NOWHERE else path)
        longest[place] = max(stay, longest.get(place, stay))
    return SeldomStays(longest)


def stayed_before(wait: Wait, stays: Mapping[Place, int]) -> int:
    """How long those who wait were at this place at most when they were there before, in ns; 0 where nothing tells."""
    calls = {rank: call for rank, call in wait.waiting.items() if call is not None}
    places = (Place(rank, wait.communicator, call.kind, call.call_path) for rank, call in calls.items())
    return max((stays.get(place, 0) for place in places), default=0)
