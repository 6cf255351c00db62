"""The wait-for graph: which rank waits for which, over all communicators, and who waits for nobody.

A rank with a pending operation waits for the members that have not entered it. The graph has one node for a rank and one for
an operation somebody waits in (communicator, sequence), so that its size grows with the sum of the group sizes, not with
their squares. A root is a sink of the graph of strongly connected components: a rank that waits for nobody, a cycle, or an
operation that everyone entered and nobody finished. What only logs or counters tell (`reported`) adds to what calls and stacks
record and never turns it over. (VenusTrace section 4.2, incomplete graph; MegaTrace Algorithm 1: first incomplete node, then
the missing call.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import networkx as nx

from forensics.model import Family
from forensics.rules.reductions.calls.positions import DIRECT, Operation


class RootKind(StrEnum):
    """What the sink of a chain of waits is."""

    FREE = "free"
    CYCLE = "cycle"
    ALL_JOINED = "all_joined"
    INVERTED = "inverted"


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """One operation somebody waits in: who waits (with the operation's facts) and for whom. Equal to itself only.

    `absent` are members known not to have entered; `unheard` are members without recorder evidence, or whose dump was cut
    before it, filled only when no known member is absent; `elsewhere` are those of them that left a record of another kind,
    which names and counts the operation differently. `assumed` are ranks outside the inferred membership that may belong
    to the group: used when membership was inferred from the very ranks that wait, or from records that some rank lacks.
    `peers` are sender and receiver of a point-to-point call. `queued` are members that issued it behind an earlier operation
    of the same communicator that they are still in. `left` came out of it: all have entered, and nothing shows whether the
    `unended` came out. `families` says what shows where a member stands; `nameless` are processes of unknown rank, that wait
    in it and that are missing; `overdue`: its source speaks of it because a limit has passed. `lost` are members that had
    issued it, and are missing because their processes ended.
    """

    communicator: str
    sequence: int
    waiting: Mapping[int, Operation | None]
    absent: tuple[int, ...]
    unheard: tuple[int, ...] = ()
    assumed: tuple[int, ...] = ()
    peers: tuple[int, int] | None = None
    queued: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    unended: tuple[int, ...] = ()
    elsewhere: tuple[int, ...] = ()
    families: Mapping[int, Family] = field(default_factory=dict)
    nameless: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    overdue: bool = False
    lost: tuple[int, ...] = ()

    @property
    def recorded(self) -> bool:
        """Whether the calls or the stack of some rank show that it waits here."""
        return any(self.families.get(rank, Family.RECORDER) in DIRECT for rank in self.waiting)

    def records(self, rank: int) -> bool:
        """Whether what was recorded, of the rank itself or for want of it by its peers, says that it is missing here."""
        if rank in self.absent:
            return self.families.get(rank, Family.RECORDER) in DIRECT
        return self.recorded and rank in self.missing

    @property
    def missing(self) -> tuple[int, ...]:
        """Everyone who is waited for, whatever the strength of the evidence."""
        return self.absent or self.unheard or self.assumed

    @property
    def since_ns(self) -> int | None:
        """When the first of the waiting ranks issued the operation."""
        return min((op.enqueued_ns for op in self.waiting.values() if op and op.enqueued_ns is not None), default=None)


@dataclass(frozen=True, slots=True)
class Root:
    """A sink: its ranks, and the waits that end in it (directly).

    `INVERTED` are operations that all members entered, in orders that contradict each other: each is behind another of them on
    some rank. `ALL_JOINED` is one such operation, or several that group calls of their members tie together. `reported` are
    roots that only logs or counters show.
    """

    kind: RootKind
    ranks: tuple[int, ...]
    waits: tuple[Wait, ...]
    reported: bool = False


@dataclass(frozen=True, slots=True)
class WaitGraph:
    """All waits, the sinks by what shows them, for each waiting rank whom it waits for directly, and what lacks each rank."""

    waits: tuple[Wait, ...]
    roots: tuple[Root, ...]
    waits_for: Mapping[int, tuple[int, ...]]
    reported_roots: tuple[Root, ...] = ()
    lacking: Mapping[int, tuple[Wait, ...]] = field(default_factory=dict)

    @property
    def recorded(self) -> tuple[Wait, ...]:
        """Waits that calls or stacks show."""
        return tuple(wait for wait in self.waits if wait.recorded)

    @property
    def free_roots(self) -> tuple[Root, ...]:
        """Sinks that are a single rank, in the order of ranks."""
        return tuple(root for root in self.roots if root.kind is RootKind.FREE)

    def waiting_for(self, rank: int) -> tuple[Wait, ...]:
        """Waits in which `rank` is missing."""
        return self.lacking.get(rank, ())

    def waiters(self, rank: int) -> tuple[int, ...]:
        """Ranks that wait for `rank`, directly or through others."""
        reached, frontier = set[int](), {rank}
        while frontier:
            frontier = {r for r, whom in self.waits_for.items() if r not in reached and not frontier.isdisjoint(whom)} - {rank}
            reached |= frontier
        return tuple(sorted(reached))

    def awaited(self, rank: int) -> frozenset[int]:
        """Ranks that `rank` waits for, directly or through others."""
        reached, frontier = set[int](), {rank}
        while frontier:
            frontier = {other for one in frontier for other in self.waits_for.get(one, ())} - reached
            reached |= frontier
        return frozenset(reached)


def explained_waits(waits: Sequence[Wait]) -> tuple[Wait, ...]:
    """Drop the unheard members of waits in calls of shim logs that a known member explains: it is in an earlier call itself.

    The absence of such a log says nothing of its rank: it is made with the first call and outlives its process. That an
    operation has started means there that its proxy was handed it, and nothing of the device.
    """
    waits = [_unstarted(wait) if _is_logged(wait) else wait for wait in waits]
    heads = _heads(waits)
    return tuple(
        replace(wait, unheard=()) if _is_logged(wait) and wait.unheard and _late(wait, index, heads) else wait
        for index, wait in enumerate(waits)
    )


def _is_logged(wait: Wait) -> bool:
    return all(wait.families.get(rank) is Family.SHIM for rank in wait.waiting)


def _unstarted(wait: Wait) -> Wait:
    calls = {rank: call and replace(call, started=False) for rank, call in wait.waiting.items()}
    return replace(wait, waiting=calls)


def wait_graph(waits: Sequence[Wait], *reports: Sequence[Wait]) -> WaitGraph:
    """Find the sinks of the waits; `reports` are waits that logs and counters tell, the stronger ones first.

    A joined operation that some member has only queued behind an earlier one (the host runs ahead of the device) is not where
    that member is stuck: it depends on the member's first pending operations (several, when one group call issued them).
    """
    kept = list(waits)
    for report in reports:
        kept += _subordinate(kept, report)
    heads, lacking = _heads(kept), _lacking(kept)
    condensed = nx.condensation(_digraph(kept, heads))
    sinks = (members for n, members in condensed.nodes("members") if condensed.out_degree(n) == 0)
    found = [_root(members, kept, heads, lacking) for members in sinks]
    held = {rank for root in found for rank in root.ranks}
    found += [root for root in _closed_circles(kept, heads, lacking) if held.isdisjoint(root.ranks)]
    roots = sorted(found, key=lambda root: (root.kind, root.ranks))
    shown = {reported: tuple(r for r in roots if r.reported is reported and r.ranks) for reported in (False, True)}
    return WaitGraph(tuple(kept), shown[False], _waits_for(kept, heads), shown[True], lacking)


def _closed_circles(waits: Sequence[Wait], heads: _Heads, lacking: Mapping[int, tuple[Wait, ...]]) -> Iterator[Root]:
    """Circles that lead to nobody but ranks of which nothing is known. Messages are posted ahead: they close none."""
    known = nx.condensation(_digraph([replace(wait, unheard=(), assumed=()) for wait in waits], heads))
    awaited = {n for n, members in known.nodes("members") if any(what == "rank" for what, _ in members)}
    for n in (n for n in awaited if len(known.nodes[n]["members"]) > 1 and awaited.isdisjoint(nx.descendants(known, n))):
        root = _root(known.nodes[n]["members"], waits, heads, lacking)
        if root.kind is RootKind.CYCLE and not any(wait.peers for wait in root.waits):
            yield root


def _lacking(waits: Iterable[Wait]) -> Mapping[int, tuple[Wait, ...]]:
    """The waits in which each rank is missing."""
    found: dict[int, list[Wait]] = {}
    for wait in waits:
        for rank in wait.missing:
            found.setdefault(rank, []).append(wait)
    return {rank: tuple(of_rank) for rank, of_rank in found.items()}


def _digraph(waits: Sequence[Wait], heads: _Heads) -> nx.DiGraph:
    """From ranks and nameless processes to the operations they wait in, and from these to those they lack."""
    graph: nx.DiGraph = nx.DiGraph()
    for index, wait in enumerate(waits):
        node = ("operation", index)
        inside, outside = wait.nameless
        graph.add_edges_from((("rank", rank), node) for rank in wait.waiting)
        graph.add_edges_from((("process", process), node) for process in inside)
        graph.add_edges_from((node, ("rank", rank)) for rank in wait.missing)
        graph.add_edges_from((node, ("process", process)) for process in outside)
        if not (wait.missing or outside):
            graph.add_edges_from((node, ("call", rank)) for rank in _late(wait, index, heads) | _beside(wait, index, heads))
    graph.add_edges_from((("call", rank), ("operation", head)) for rank, found in heads.items() for head in found)
    return graph


def _subordinate(waits: Sequence[Wait], reports: Sequence[Wait]) -> list[Wait]:
    """The reported waits, without those of a rank that waits for nobody by better evidence, for somebody who waits for it."""
    if not (waits and reports):
        return list(reports)
    graph = _digraph(waits, _heads(waits))
    free = {rank for what, rank in graph.nodes if what == "rank" and not graph.out_degree((what, rank))}
    kept = []
    for wait in reports:
        held = free & wait.waiting.keys()
        if held:
            lacking = [("rank", rank) for rank in wait.missing if ("rank", rank) in graph]
            reached = {rank for node in lacking for what, rank in nx.descendants(graph, node) if what == "rank"} & held
            wait = replace(wait, waiting={rank: call for rank, call in wait.waiting.items() if rank not in reached})
        if wait.waiting or wait.nameless[0]:
            kept.append(wait)
    return kept


_Heads = Mapping[int, Collection[int]]


def _late(wait: Wait, index: int, heads: _Heads) -> set[int]:
    """Members that issued the operation but are stuck in an earlier one; what the device has begun is behind nothing."""
    if wait.left:
        return set()
    begun = {rank for rank, operation in wait.waiting.items() if operation is not None and operation.started}
    return {rank for rank in (*wait.waiting, *wait.queued) if index not in heads.get(rank, (index,))} - begun


def _beside(wait: Wait, index: int, heads: _Heads) -> set[int]:
    """Members that issued it in one group call with others: the call completes as a whole."""
    return {rank for rank in wait.waiting if index in heads[rank] and len(heads[rank]) > 1}


def _heads(waits: Sequence[Wait]) -> _Heads:
    """First pending operations of each waiting rank, as indices into `waits`: nothing orders the members of a group call.

    Where calls or stacks show what a rank is in, what else it is said to be in is not its first one.
    """
    pending: dict[int, dict[object, list[tuple[tuple[bool, int], int]]]] = {}
    for index, wait in enumerate(waits):
        reported = not wait.recorded
        for rank, operation in wait.waiting.items():
            # The calls of a shim log have an order of their own.
            kind = Family.SHIM if wait.families.get(rank) is Family.SHIM else None
            place = ((reported, operation.order if operation else 0), index)
            pending.setdefault(rank, {}).setdefault(kind, []).append(place)
    return {rank: [index for places in kinds.values() for index in _first(places)] for rank, kinds in pending.items()}


def _first(places: Sequence[tuple[tuple[bool, int], int]]) -> list[int]:
    least = min(places)[0]
    return [index for order, index in places if order == least]


def _root(
    members: Collection[tuple[str, Any]], waits: Sequence[Wait], heads: _Heads, lacking: Mapping[int, tuple[Wait, ...]]
) -> Root:
    ranks = tuple(sorted(number for what, number in members if what == "rank"))
    operations = sorted(number for what, number in members if what == "operation")
    cycle = tuple(waits[index] for index in operations)
    if not operations:
        ends = lacking[ranks[0]] if ranks else ()
        return Root(RootKind.FREE, ranks, ends, not any(wait.records(ranks[0]) for wait in ends))
    reported = not all(wait.recorded for wait in cycle)
    if ranks:
        return Root(RootKind.CYCLE, ranks, cycle, reported)
    inside = tuple(sorted({rank for wait in cycle for rank in wait.waiting}))
    ordered = any(_late(waits[index], index, heads) for index in operations)
    return Root(RootKind.INVERTED if ordered else RootKind.ALL_JOINED, inside, cycle, reported)


def _waits_for(waits: Sequence[Wait], heads: _Heads) -> dict[int, tuple[int, ...]]:
    """Whom each waiting rank waits for: members that have not entered, or entered but are stuck in something earlier."""
    whom: dict[int, set[int]] = {}
    for index, wait in enumerate(waits):
        late = _late(wait, index, heads)
        for rank in wait.waiting:
            whom.setdefault(rank, set()).update(wait.missing or (late if index in heads[rank] else ()))
    return {rank: tuple(sorted(missing - {rank})) for rank, missing in sorted(whom.items())}
