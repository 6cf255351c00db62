"""Members of the communicators that shim logs tell of: each process states its own place, and how many there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of

_STATES = """
SELECT communicator, max(size), list(DISTINCT {'place': group_rank, 'rank': rank} ORDER BY {'place': group_rank, 'rank': rank})
FROM communicator_states
WHERE communicator IS NOT NULL AND rank IS NOT NULL AND group_rank >= 0 AND size > 1
GROUP BY communicator HAVING min(size) = max(size) ORDER BY communicator
"""
_Places = Sequence[tuple[int, int]]
# Groups whose ranks lie alike, before one more of which a log is lost is taken to be another of these.
_LEAST_SIBLINGS = 2


@dataclass(frozen=True, slots=True)
class LoggedGroup:
    """One communicator: `seen` are ranks whose process says that it belongs; `members` is empty when some are not known.

    `places` are those of the ranks in the group. `alike` are the members that it has if its ranks lie as those of others of its
    size do; empty where all are known, or where that leaves a choice.
    """

    communicator: str
    seen: tuple[int, ...]
    members: tuple[int, ...]
    places: Mapping[int, int]
    alike: tuple[int, ...]


def logged_groups(connection: DuckDBPyConnection, world_size: int | None) -> list[LoggedGroup]:
    """All communicators of two or more that a log tells of, in label order.

    The members are known when every place of the group has stated its rank, or when the group is as large as the job and each
    known place is the rank itself. A place that two ranks claim makes the group unknown.
    """
    rows = rows_of(connection, "communicator_states", _STATES)
    stated = [(label, size, [(each["place"], each["rank"]) for each in places]) for label, size, places in rows]
    heard = {rank for _, _, places in stated for _, rank in places}
    largest = world_size or max((size for _, size, _ in stated), default=0)
    known = {label: _members(size, places, world_size) for label, size, places in stated}
    shapes = Counter(tuple(rank - found[0] for rank in found) for found in known.values() if found)
    return [
        LoggedGroup(
            label,
            tuple(sorted({rank for _, rank in places})),
            known[label],
            {rank: place for place, rank in places},
            () if known[label] else _alike(size, places, shapes, range(largest), heard),
        )
        for label, size, places in stated
    ]


def _members(size: int, places: _Places, world_size: int | None) -> tuple[int, ...]:
    by_place = dict(places)
    if not _agree(size, places):
        return ()
    if len(by_place) == size:
        return tuple(by_place[place] for place in range(size))
    whole = size == world_size and all(place == rank for place, rank in places)
    return tuple(range(size)) if whole else ()


def _agree(size: int, places: _Places) -> bool:
    """Whether each place is of one rank, each rank has one place, and the group has that place."""
    taken, ranks = {place for place, _ in places}, {rank for _, rank in places}
    return len(taken) == len(ranks) == len(places) and max(taken) < size


def _alike(
    size: int, places: _Places, shapes: Mapping[tuple[int, ...], int], world: range, heard: Collection[int]
) -> tuple[int, ...]:
    """The members where those that left no log are told by groups of this size whose ranks lie alike, and in one way only."""
    found = {
        tuple(first + step for step in shape)
        for shape, often in shapes.items()
        if len(shape) == size and often >= _LEAST_SIBLINGS and _agree(size, places)
        for first in {rank - shape[place] for place, rank in places}
    }
    ranks = {rank for _, rank in places}
    fitting = [
        members
        for members in found
        if all(members[place] == rank for place, rank in places)
        and all(rank in world and rank not in heard for rank in members if rank not in ranks)
    ]
    return fitting[0] if len(fitting) == 1 else ()
