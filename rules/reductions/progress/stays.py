"""How long a rank stayed in a call the last times that it came to the same place of the program, where it seldom comes there.

The pauses of a job tell what is usual between most of its calls. The barrier behind an evaluation or a checkpoint is one call
of hundreds: one long stay there is no pause that recurs, and still what a sound job does at that place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NewType

from forensics.case.database import rows_of
from forensics.rules.reductions.calls.shim_calls import Calls
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

_STAYS = f"""
WITH calls AS (
    SELECT rank, communicator, kind, call_path, enqueued_ns,
           lead(enqueued_ns) OVER (PARTITION BY rank ORDER BY enqueued_ns) - enqueued_ns AS stay
    FROM latest_call WHERE enqueued_ns IS NOT NULL AND communicator IS NOT NULL AND NOT coalesce(is_p2p, false)
)
SELECT rank, communicator, kind, call_path, max(stay) FROM calls
WHERE stay IS NOT NULL GROUP BY rank, communicator, kind, call_path HAVING count(*) <= {SELDOM} ORDER BY ALL
"""


@reduction
def seldom_stays(calls: Calls) -> SeldomStays:
    """Read the stays of all ranks at places to which they seldom come."""
    rows = rows_of(calls.connection, "operations", _STAYS)
    return SeldomStays({Place(*place): stay for *place, stay in rows})


def stayed_before(wait: Wait, stays: Mapping[Place, int]) -> int:
    """How long those who wait were at this place at most when they were there before, in ns; 0 where nothing tells."""
    calls = {rank: call for rank, call in wait.waiting.items() if call is not None}
    places = (Place(rank, wait.communicator, call.kind, call.call_path) for rank, call in calls.items())
    return max((stays.get(place, 0) for place in places), default=0)
