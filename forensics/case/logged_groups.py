"""Members of NCCL communicators as their shim logs tell them: each process knows its own place and how many there are."""

from __future__ import annotations

from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of

_STATES = """
SELECT communicator, max(size), list(DISTINCT {'place': group_rank, 'rank': rank} ORDER BY {'place': group_rank, 'rank': rank})
FROM communicator_states
WHERE communicator IS NOT NULL AND rank IS NOT NULL AND group_rank >= 0 AND size > 1
GROUP BY communicator HAVING min(size) = max(size) ORDER BY communicator
"""


@dataclass(frozen=True, slots=True)
class LoggedGroup:
    """One communicator: `seen` are ranks whose process says that it belongs; `members` is empty when some are not known."""

    communicator: str
    seen: tuple[int, ...]
    members: tuple[int, ...]


def logged_groups(connection: DuckDBPyConnection, world_size: int | None) -> list[LoggedGroup]:
    """All communicators of two or more that a log tells of, in label order.

    The members are known when every place of the group has told its rank, or when the group is as large as the job and each
    known place is the rank itself. A place that two ranks claim makes the group unknown.
    """
    rows = rows_of(connection, "communicator_states", _STATES)
    return [
        LoggedGroup(label, tuple(sorted({p["rank"] for p in places})), _members(size, places, world_size))
        for label, size, places in rows
    ]


def _members(size: int, places: list[dict[str, int]], world_size: int | None) -> tuple[int, ...]:
    by_place = {place["place"]: place["rank"] for place in places}
    if len(by_place) != len(places) or len(set(by_place.values())) != len(places) or any(place >= size for place in by_place):
        return ()
    if len(by_place) == size:
        return tuple(by_place[place] for place in range(size))
    whole = size == world_size and all(place == rank for place, rank in by_place.items())
    return tuple(range(size)) if whole else ()
