"""The wait-for graph: which rank waits for which, over all communicators, and who waits for nobody.

A rank with a pending operation waits for the members that have not entered it. The graph has one node for a rank and one for
an operation somebody waits in (communicator, sequence), so that its size grows with the sum of the group sizes, not with
their squares. A root is a sink of the graph of strongly connected components: a rank that waits for nobody, a cycle, or an
operation that everyone entered and nobody finished.
(VenusTrace section 4.2, incomplete graph; MegaTrace Algorithm 1: first incomplete node, then the missing call.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import networkx as nx

from forensics.rules.reductions.calls.positions import Communicator, Operation, Position


class RootKind(StrEnum):
    """What the sink of a chain of waits is."""

    FREE = "free"
    CYCLE = "cycle"
    ALL_JOINED = "all_joined"
    ENTANGLED = "entangled"


@dataclass(frozen=True, slots=True)
class Wait:
    """One operation somebody waits in: who waits (with the operation's facts) and for whom.

    `absent` are members known not to have entered; `unheard` are members without recorder evidence, or whose dump was cut
    before it, filled only when no known member is absent. `assumed` are ranks outside the inferred membership that may belong
    to the group: used when membership was inferred from the very ranks that wait. `peers` are sender and receiver of a
    point-to-point call. `queued` are members that issued it behind an earlier operation of the same communicator that they
    are still in.
    """

    communicator: str
    sequence: int
    waiting: Mapping[int, Operation | None]
    absent: tuple[int, ...]
    unheard: tuple[int, ...] = ()
    assumed: tuple[int, ...] = ()
    peers: tuple[int, int] | None = None
    queued: tuple[int, ...] = ()

    @property
    def missing(self) -> tuple[int, ...]:
        """Everyone who is waited for, whatever the strength of the evidence."""
        return self.absent or self.unheard or self.assumed

    @property
    def since_ns(self) -> int | None:
        """When the first of the waiting ranks issued the operation."""
        times = [op.enqueued_ns for op in self.waiting.values() if op is not None and op.enqueued_ns is not None]
        return min(times) if times else None


@dataclass(frozen=True, slots=True)
class Root:
    """A sink: its ranks, and the waits that end in it (directly).

    `ENTANGLED` are operations that all members entered, in orders that contradict each other: each is behind another of them on
    some rank. `ALL_JOINED` is one such operation, or several that group calls of their members tie together.
    """

    kind: RootKind
    ranks: tuple[int, ...]
    waits: tuple[Wait, ...]


@dataclass(frozen=True, slots=True)
class WaitGraph:
    """All waits, the sinks, and for each waiting rank whom it waits for directly."""

    waits: tuple[Wait, ...]
    roots: tuple[Root, ...]
    waits_for: Mapping[int, tuple[int, ...]]

    @property
    def free_roots(self) -> tuple[Root, ...]:
        """Sinks that are a single rank."""
        return tuple(root for root in self.roots if root.kind is RootKind.FREE)

    def waiting_for(self, rank: int) -> tuple[Wait, ...]:
        """Waits in which `rank` is missing."""
        return tuple(wait for wait in self.waits if rank in wait.missing)

    def waiters(self, rank: int) -> tuple[int, ...]:
        """Ranks that wait for `rank`, directly or through others."""
        reached: set[int] = set()
        frontier = {rank}
        while frontier:
            frontier = {r for r, whom in self.waits_for.items() if r not in reached and not frontier.isdisjoint(whom)} - {rank}
            reached |= frontier
        return tuple(sorted(reached))


def recorded_waits(groups: Sequence[Communicator], world: Collection[int], ignore: Collection[int] = ()) -> tuple[Wait, ...]:
    """Build the waits that Flight Recorder positions show; `ignore` are ranks whose positions are out of date."""
    found: list[Wait] = []
    for group in groups:
        pending = [p for p in group.pending if p.rank not in ignore]
        sequences = sorted({p.pending for p in pending if p.pending is not None})
        found.extend(_wait(group, sequence, pending, world) for sequence in sequences)
    return tuple(found)


def _wait(group: Communicator, sequence: int, pending: Sequence[Position], world: Collection[int]) -> Wait:
    waiting = {p.rank: p.operation for p in pending if p.pending == sequence}
    behind = [r for r in group.members if r in group.positions and group.positions[r].entered < sequence]
    issued = [p.operation.enqueued_ns for p in pending if p.pending == sequence and p.operation and p.operation.enqueued_ns]
    # A dump that was taken before the first of the others issued the operation does not tell whether its rank followed.
    early = {r for r in behind if issued and group.captured.get(r, min(issued)) < min(issued)}
    absent = [r for r in behind if r not in group.cut and r not in early]
    unheard = [] if absent else [r for r in group.members if r not in group.positions or r in behind]
    assumed: list[int] = []
    # A collective that completed had all members: from then on the members that were seen are all there are.
    proven = any(position.done for position in group.positions.values())
    if group.confidence == "assumed" and not (proven or absent or unheard) and set(waiting) == set(group.members):
        assumed = [r for r in sorted(world) if r not in group.members]
    queued = tuple(p.rank for p in pending if p.pending is not None and p.pending < sequence <= p.entered)
    return Wait(group.label, sequence, waiting, tuple(absent), tuple(unheard), tuple(assumed), queued=queued)


def explained_waits(waits: Sequence[Wait]) -> tuple[Wait, ...]:
    """Drop the unheard members of waits that a known member explains: it is still in an earlier operation itself.

    For logs whose absence says nothing of their rank: they are made with the first call and outlive their process. That an
    operation has started means there that its proxy was handed it, and nothing of the device.
    """
    waits = [replace(wait, waiting={rank: _unstarted(call) for rank, call in wait.waiting.items()}) for wait in waits]
    heads = _heads(waits)
    return tuple(
        replace(wait, unheard=()) if wait.unheard and _late(wait, index, heads) else wait for index, wait in enumerate(waits)
    )


def _unstarted(call: Operation | None) -> Operation | None:
    return None if call is None else replace(call, started=False)


def unrecorded_wait(waiting: Mapping[int, Operation | None], free: Iterable[int]) -> Wait:
    """Build the wait of ranks whose stacks show a collective that no recorder described; `free` are ranks that are in none."""
    return Wait("", 0, dict(waiting), (), tuple(sorted(free)))


def wait_graph(waits: Sequence[Wait]) -> WaitGraph:
    """Find the sinks of the waits.

    A joined operation that some member has only queued behind an earlier one (the host runs ahead of the device) is not where
    that member is stuck: it depends on the member's first pending operations (several, when one group call issued them).
    """
    graph: nx.DiGraph = nx.DiGraph()
    heads = _heads(waits)
    for index, wait in enumerate(waits):
        node = ("operation", index)
        graph.add_edges_from((("rank", rank), node) for rank in wait.waiting)
        graph.add_edges_from((node, ("rank", rank)) for rank in wait.missing)
        if not wait.missing:
            graph.add_edges_from((node, ("call", rank)) for rank in _late(wait, index, heads) | _beside(wait, index, heads))
    graph.add_edges_from((("call", rank), ("operation", head)) for rank, found in heads.items() for head in found)
    condensed = nx.condensation(graph)
    sinks = [condensed.nodes[n]["members"] for n in condensed.nodes if condensed.out_degree(n) == 0]
    roots = sorted((_root(members, waits, heads) for members in sinks), key=lambda root: (root.kind, root.ranks))
    return WaitGraph(tuple(waits), tuple(roots), _waits_for(waits, heads))


_Heads = Mapping[int, Collection[int]]


def _late(wait: Wait, index: int, heads: _Heads) -> set[int]:
    """Members that issued the operation but are stuck in an earlier one; what the device has begun is behind nothing."""
    begun = {rank for rank, operation in wait.waiting.items() if operation is not None and operation.started}
    return {rank for rank in (*wait.waiting, *wait.queued) if index not in heads.get(rank, (index,))} - begun


def _beside(wait: Wait, index: int, heads: _Heads) -> set[int]:
    """Members that issued it in one group call with others: the call completes as a whole."""
    return {rank for rank in wait.waiting if index in heads[rank] and len(heads[rank]) > 1}


def _heads(waits: Sequence[Wait]) -> _Heads:
    """First pending operations of each waiting rank, as indices into `waits`: nothing orders the members of a group call."""
    pending: dict[int, list[tuple[int, int]]] = {}
    for index, wait in enumerate(waits):
        for rank, operation in wait.waiting.items():
            pending.setdefault(rank, []).append((operation.order if operation else 0, index))
    return {rank: [index for order, index in places if order == min(places)[0]] for rank, places in pending.items()}


def _root(members: Collection[tuple[str, int]], waits: Sequence[Wait], heads: _Heads) -> Root:
    ranks = tuple(sorted(number for what, number in members if what == "rank"))
    operations = sorted(number for what, number in members if what == "operation")
    cycle = tuple(waits[index] for index in operations)
    if not operations:
        return Root(RootKind.FREE, ranks, tuple(wait for wait in waits if ranks[0] in wait.missing))
    if ranks:
        return Root(RootKind.CYCLE, ranks, cycle)
    inside = tuple(sorted({rank for wait in cycle for rank in wait.waiting}))
    ordered = any(_late(waits[index], index, heads) for index in operations)
    return Root(RootKind.ENTANGLED if ordered else RootKind.ALL_JOINED, inside, cycle)


def _waits_for(waits: Sequence[Wait], heads: _Heads) -> dict[int, tuple[int, ...]]:
    """Whom each waiting rank waits for: members that have not entered, or entered but are stuck in something earlier."""
    whom: dict[int, set[int]] = {}
    for index, wait in enumerate(waits):
        late = _late(wait, index, heads)
        for rank in wait.waiting:
            whom.setdefault(rank, set()).update(wait.missing or (late if index in heads[rank] else ()))
    return {rank: tuple(sorted(missing - {rank})) for rank, missing in sorted(whom.items())}
