"""Members that no line of their group names: found by the places that are empty, and by the ranks that speak of no such group.

A watchdog tells the numbers of the group it gave up in. The rank that never entered has nothing to give up: of its group it
says nothing. Groups of one description (all tensor-parallel groups) share no rank, so the empty place belongs to a rank that is
in none of the others and waits nowhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from forensics.rules.reductions.calls.positions import Communicator
from forensics.rules.reductions.waits.graph import Wait


def filled(waits: Sequence[Wait], groups: Iterable[Communicator], ranks: Collection[int]) -> tuple[Wait, ...]:
    """The waits that watchdogs tell, with the ranks that must be in an empty place of a group as unheard; `ranks` are all.

    An empty place is filled where it is the only one among groups of its description, and fits as many ranks as are left.
    """
    waiting = {rank for wait in waits for rank in wait.waiting}
    unheard: dict[str, tuple[int, ...]] = {}
    for alike in _by_description(groups).values():
        size = max(group.size for group in alike.values())
        spoken = {rank for group in alike.values() for rank in group.positions}
        left = tuple(rank for rank in ranks if rank not in spoken and rank not in waiting)
        holes = [wait for wait in waits if _has_room(alike.get(wait.communicator), size) and not wait.missing]
        if len(holes) == 1 and left and len(left) == size - len(alike[holes[0].communicator].positions):
            unheard[holes[0].communicator] = left
    return tuple(replace(wait, unheard=wait.unheard or unheard.get(wait.communicator, ())) for wait in waits)


def _has_room(group: Communicator | None, size: int) -> bool:
    return group is not None and len(group.positions) < size


def _by_description(groups: Iterable[Communicator]) -> dict[str, dict[str, Communicator]]:
    """Groups by what their creator called them; those that it gave no name do not tell what they are for."""
    found: dict[str, dict[str, Communicator]] = defaultdict(dict)
    for group in groups:
        _, _, description = group.label.partition(":")
        if group.unit == "work" and description not in ("", "undefined", "default_pg"):
            found[description][group.label] = group
    return found
