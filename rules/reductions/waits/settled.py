"""Whether one undated capture already has the shape of a hang: everybody waits or is waited for, and most wait."""

from __future__ import annotations

from dataclasses import dataclass

from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.waits.completions import device_stall
from forensics.rules.reductions.waits.graph import RootKind, WaitGraph


@dataclass(frozen=True, slots=True)
class Settled:
    """Whether the waits of the case, seen once, have the shape of a hang; `apart` are ranks that share the blame for them."""

    held: bool
    apart: frozenset[int]


@reduction
def settled(graph: WaitGraph, roster: Roster, groups: Communicators) -> Settled:
    """In a moving job some ranks are between operations, or still inside one that others have left. One rank shows nothing."""
    facts = roster.ranks.items()
    recorded = {rank for rank, known in facts if known.has_recorder}
    seen = recorded or {rank for rank, known in facts if known.has_stack}
    waiting = set(graph.waits_for)
    missing = {rank for wait in graph.waits for rank in wait.missing}
    passing = {RootKind.FREE, RootKind.ALL_JOINED} <= {root.kind for root in graph.roots}
    alone = len(seen) == 1 and waiting <= seen
    held = not alone and seen <= waiting | missing and not passing and 2 * len(waiting) >= len(seen)
    behind = _behind(graph, groups) & seen
    hosts = {roster.host_of(rank) for rank in behind}
    apart = frozenset(behind) if len(behind) > 1 and (len(hosts) > 1 or None in hosts) else frozenset()
    return Settled(held and (not apart or _at_rest(groups, behind)), apart)


def _behind(graph: WaitGraph, groups: Communicators) -> set[int]:
    """Ranks that the others wait for, each by itself."""
    roots = (root for root in graph.roots if root.kind is RootKind.FREE or device_stall(groups, root))
    return {rank for root in roots for rank in root.ranks}


def _at_rest(groups: Communicators, behind: set[int]) -> bool:
    """Whether all others came to rest: several of different hosts that are behind at once are on their way otherwise.

    Hosts that issue ahead of their devices end at one place, and the devices at one place too, only when something holds them
    there; those of a moving job are scattered.
    """
    pending = [[place for place in group.pending if place.rank not in behind] for group in groups]
    places = [{(place.done, place.pending, place.entered) for place in waiting} for waiting in pending]
    ahead = any(place.pending and place.entered > place.pending for waiting in pending for place in waiting)
    return ahead and all(len(found) < 2 for found in places)
