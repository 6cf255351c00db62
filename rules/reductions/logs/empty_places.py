"""Members that no line of their group names: found by the places that are empty, and by the ranks that speak of no such group.

A watchdog tells the numbers of the group it gave up in. The rank that never entered has nothing to give up: of its group it
says nothing. Groups of one description (all tensor-parallel groups) share no rank, so the empty place belongs to a rank that is
in none of the others and waits nowhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from forensics.rules.reductions.logs.log_evidence import Logged
from forensics.rules.reductions.logs.positions import LoggedGroup


@dataclass(frozen=True, slots=True)
class EmptyPlace:
    """A group whose heard members all wait at `sequence`, and the ranks that must be its other members."""

    group: LoggedGroup
    sequence: int
    ranks: tuple[int, ...]


def empty_places(logged: Logged) -> Iterator[EmptyPlace]:
    """Empty places that fit as many ranks as there are left, in the order of the groups."""
    waiting = {rank: wait for wait in logged.graph.waits for rank in wait.waiting}
    for groups in _by_description(logged).values():
        size = max(group.size for group in groups)
        spoken = {rank for group in groups for rank in group.positions}
        left = tuple(rank for rank in logged.ranks if rank not in spoken and rank not in waiting)
        stuck = [wait for wait in logged.graph.waits if any(group.label == wait.communicator for group in groups)]
        holes = [wait for wait in stuck if len(logged.group(wait.communicator).positions) < size and not wait.missing]
        if len(holes) == 1 and left and len(left) == size - len(logged.group(holes[0].communicator).positions):
            yield EmptyPlace(logged.group(holes[0].communicator), holes[0].sequence, left)


def _by_description(logged: Logged) -> dict[str, list[LoggedGroup]]:
    """Groups by what their creator called them; those that it gave no name do not tell what they are for."""
    found: dict[str, list[LoggedGroup]] = defaultdict(list)
    for group in logged.groups:
        _, _, description = group.label.partition(":")
        if group.origin == "watchdog" and description not in ("", "undefined", "default_pg"):
            found[description].append(group)
    return found
