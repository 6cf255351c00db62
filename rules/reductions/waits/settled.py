"""Whether one undated capture already has the shape of a hang: everybody waits or is waited for, and most wait."""

from __future__ import annotations

from typing import NewType

from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.waits.completions import device_stall
from forensics.rules.reductions.waits.graph import RootKind, WaitGraph

Settled = NewType("Settled", bool)
"""Whether the waits of the case, seen once, have the shape of a hang."""


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
    return Settled(held and not _several_behind(graph, roster, groups, seen))


def _several_behind(graph: WaitGraph, roster: Roster, groups: Communicators, seen: set[int]) -> bool:
    """Whether ranks of different hosts are behind, each by itself: they are on their way, one of them is stuck at most."""
    roots = (root for root in graph.roots if root.kind is RootKind.FREE or device_stall(groups, root))
    behind = {rank for root in roots for rank in root.ranks} & seen
    hosts = {roster.host_of(rank) for rank in behind}
    return len(behind) > 1 and (len(hosts) > 1 or None in hosts)
