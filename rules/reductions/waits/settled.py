"""Whether one undated capture already has the shape of a hang: everybody waits or is waited for, and most wait."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.waits.completions import ComputingDevices, StartRecords, device_stall, not_begun
from forensics.rules.reductions.waits.graph import Root, RootKind, WaitGraph
from forensics.rules.reductions.waits.launch_orders import OrderInversions


@dataclass(frozen=True, slots=True)
class Settled:
    """Whether the waits of the case, seen once, have the shape of a hang; `apart` are ranks that share the blame for them."""

    held: bool
    apart: frozenset[int]


_LEAST_COMPUTING = 2
_HISTORY = "SELECT 1 FROM latest_call WHERE state = 'done' LIMIT 1"


@reduction
def settled(
    calls: Calls, graph: WaitGraph, roster: Roster, groups: Communicators, starts: StartRecords, orders: OrderInversions,
    computing: ComputingDevices,
) -> Settled:  # fmt: skip
    """In a moving job some ranks are between operations, or inside one that others have left. One rank alone shows nothing."""
    facts = roster.ranks.items()
    recorded = {rank for rank, known in facts if known.has_recorder}
    seen = recorded or {rank for rank, known in facts if known.has_stack}
    waiting = set(graph.waits_for)
    missing = {rank for wait in graph.waits for rank in wait.missing}
    passing = {RootKind.FREE, RootKind.ALL_JOINED} <= {root.kind for root in graph.roots}
    # What the devices have begun may show that they wait for each other; that two operations run at once does not.
    apart = any(not_begun(root, graph, starts) for root in graph.roots) or any(found.order != "overlap" for found in orders)
    passing = passing or (not apart and any(_passes(root, groups, seen) for root in graph.roots))
    # The devices of a job that stands still are in what the others wait in, but for the one that all wait for.
    passing = passing or len(computing - {rank for root in graph.roots for rank in root.ranks}) >= _LEAST_COMPUTING
    passing = passing or _are_apart(graph, roster)
    alone = len(seen) == 1 and waiting <= seen
    held = not alone and seen <= waiting | missing and not passing and 2 * len(waiting) >= len(seen)
    behind = _behind(graph, groups) & seen
    hosts = {roster.host_of(rank) for rank in behind}
    if len(behind) < 2 or (len(hosts) == 1 and None not in hosts):
        return Settled(held, frozenset())
    # Several of different hosts that are behind at once are on their way. Dumps of what is active only are asked for when a job
    # stands, and leave nothing to compare with: there it counts that all others came to rest.
    history = calls.connection.execute(_HISTORY).fetchall()
    return Settled(held and not history and _at_rest(groups, behind), frozenset(behind))


def _passes(root: Root, groups: Communicators, seen: set[int]) -> bool:
    """Whether an operation that all have entered is how a moving job looks: some have left it, or the whole job is inside."""
    wait = root.waits[0] if root.waits else None
    if root.kind is not RootKind.ALL_JOINED or wait is None or not wait.communicator:
        return False
    if wait.peers:
        return len(wait.waiting) < len(wait.peers)
    group = next(g for g in groups if g.label == wait.communicator)
    left = set(group.finished(wait.sequence)) - wait.waiting.keys()
    return seen <= wait.waiting.keys() or bool(left and not device_stall(groups, root))


def _are_apart(graph: WaitGraph, roster: Roster) -> bool:
    """Whether messages end the waits at two places that share neither rank nor host: no one link or device holds up both.

    So looks a pipeline whose devices are at work, as the hosts have queued what comes next.
    """
    kinds = (RootKind.ALL_JOINED, RootKind.INVERTED)
    ends = [set(root.ranks) for root in graph.roots if root.kind in kinds and all(wait.peers for wait in root.waits)]
    places = [(ranks, {roster.host_of(rank) for rank in ranks} - {None}) for ranks in ends]
    return any(
        ranks.isdisjoint(others) and hosts.isdisjoint(beside)
        for number, (ranks, hosts) in enumerate(places)
        for others, beside in places[:number]
    )


def ends_in_queued_messages(graph: WaitGraph, seen: Collection[int]) -> bool:
    """Whether the waits end in messages that no device is known to be inside, while every host has queued a call of all ranks.

    The hosts of such a job wait at the end of each step, whether its devices work or stand.
    """
    whole = any(
        wait.communicator and not (wait.peers or wait.missing) and wait.waiting.keys() >= {*seen} for wait in graph.waits
    )
    ends = [wait for root in graph.roots for wait in root.waits]
    begun = all(call is not None and call.started for wait in ends for call in wait.waiting.values())
    return whole and all(wait.peers and not wait.missing for wait in ends) and not begun


def _behind(graph: WaitGraph, groups: Communicators) -> set[int]:
    """Ranks that the others wait for, each by itself.

    One whose dump is cut may be inside what they wait in, where another one is known not to be.
    """
    roots = [root for root in graph.roots if root.kind is RootKind.FREE or device_stall(groups, root)]
    # Asked once of each wait: in a large job of which few dumps are there, thousands of ranks lack in the same ones.
    waits = {id(wait): wait for root in roots for wait in root.waits}
    unheard = {key for key, wait in waits.items() if wait.missing and {*wait.missing} <= {*wait.unheard}}
    known = [root for root in roots if not all(id(wait) in unheard for wait in root.waits)]
    return {rank for root in known or roots for rank in root.ranks}


def _at_rest(groups: Communicators, behind: set[int]) -> bool:
    """Whether all others are at one place in each communicator, their hosts further on than their devices."""
    pending = [[place for place in group.pending if place.rank not in behind] for group in groups]
    places = [{(place.done, place.pending, place.entered) for place in waiting} for waiting in pending]
    ahead = any(place.pending and place.entered > place.pending for waiting in pending for place in waiting)
    return ahead and all(len(found) < 2 for found in places)
