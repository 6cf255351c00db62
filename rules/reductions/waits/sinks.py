"""Makes the wait-for graph of the waits that are known, and finds its sinks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import networkx as nx

from forensics.model import Family
from forensics.rules.reductions.waits.graph import Root, RootKind, Wait, WaitGraph


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
    """Members that issued it in one group call with others: the call completes as a whole.

    What only counters of a cut record tell of has no order; it is not known to be one call.
    """
    return {rank for rank in wait.waiting if index in heads[rank] and len(heads[rank]) > 1 and not _is_behind_cut(wait, rank)}


def _is_behind_cut(wait: Wait, rank: int) -> bool:
    """Whether the record of a rank is cut before this call, which its counters tell of."""
    is_recorder = wait.families.get(rank, Family.RECORDER) is Family.RECORDER
    return wait.waiting[rank] is None and is_recorder and not wait.is_counted


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
    late = [_late(wait, index, heads) for index, wait in enumerate(waits)]
    places: dict[int, list[int]] = {}
    for index, wait in enumerate(waits):
        for rank in wait.waiting:
            places.setdefault(rank, []).extend([index] if wait.missing or index in heads[rank] else [])
    # Ranks that wait in the same operations share one set: thousands may wait for thousands of which nothing is there.
    whom = {found: frozenset().union(*(waits[n].missing or late[n] for n in found)) for found in {*map(tuple, places.values())}}
    ordered = {found: tuple(sorted(missing)) for found, missing in whom.items()}
    return {
        rank: ordered[found] if rank not in whom[found] else tuple(sorted(whom[found] - {rank}))
        for rank, found in sorted((rank, tuple(found)) for rank, found in places.items())
    }
