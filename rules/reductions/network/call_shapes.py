"""How the hosts of one channel of a collective wait for each other: in a ring for the one before, in a tree for those below.

NCCL's logs do not say of an open call which it is; the flows do. Two hosts of several that send to each other are neighbours in
a tree, and what goes towards its root is ahead of what comes back: a sum is sent back only when it is complete. A GPU sums for
its parent whatever becomes of the results, but for the one at the root, which sends back what it sums.

In a ring each host sends as much more than it got as it has members, wherever the ring runs dry. One that got more than it sent
on, against all others, is where it ran dry (Mycroft, Table 3: each rank should transmit the same amount of data).

A GPU that never came into a call leaves no direction on the edges of its trees: NCCL has two of them, in which places differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from forensics.rules.reductions.network.flow_ends import Flow, FlowState
from forensics.rules.reductions.network.host_places import Place, place_of

Places = Mapping[tuple[str, int], Place]
Edge = tuple[Place, Place]

# Of fewer a ring and a tree have the same flows.
_LEAST_PLACES = 3
# Of one tree alone, either end of an edge may be the lower one.
_LEAST_TREES = 2


def channels_of_calls(flows: Iterable[Flow]) -> Mapping[tuple[str, int, str, int], tuple[Flow, ...]]:
    """Flows of collectives by call and channel."""
    found: dict[tuple[str, int, str, int], list[Flow]] = defaultdict(list)
    for flow in flows:
        if flow.kind != "p2p":
            found[flow.communicator, flow.number, flow.kind, flow.channel].append(flow)
    return {key: tuple(each) for key, each in found.items()}


@dataclass(frozen=True, slots=True)
class Tree:
    """Of one channel: edges towards the root, edges away from it, and the place that is the root, as far as flows tell."""

    up: frozenset[Edge] = field(default_factory=frozenset)
    down: frozenset[Edge] = field(default_factory=frozenset)
    root: Place | None = None


def tree_of(flows: Sequence[Flow], places: Places) -> Tree:
    """The tree of one channel of a call; an empty one where it is none."""
    edges = {_edge(flow, places): flow for flow in flows}
    joined = {edge for edge in edges if edge[::-1] in edges}
    if len({place for edge in joined for place in edge}) < _LEAST_PLACES:
        return Tree()
    up = frozenset(edge for edge in joined if _sent(edges[edge]) > _sent(edges[edge[::-1]]))
    down = frozenset(edge[::-1] for edge in up)
    roots = {parent for _, parent in up} - {place for edge in edges if edge not in down for place in edge[:1]}
    return Tree(up, down, next(iter(roots)) if len(roots) == 1 else None)


def _edge(flow: Flow, places: Places) -> Edge:
    return place_of(places, flow, flow.sender), place_of(places, flow, flow.receiver)


def _sent(flow: Flow) -> int:
    """Steps that the sender made, as far as one end shows."""
    return max(end.ready for end in flow.ends)


def feeds(other: Flow, flow: Flow, place: Place, tree: Tree, places: Places) -> bool:
    """Whether the GPUs of a place need `other` for `flow`, both of one channel of a call."""
    if place == tree.root:
        return True
    return not (_edge(flow, places) in tree.up and _edge(other, places) in tree.down)


def run_dry(flows: Sequence[Flow], places: Places) -> Flow | None:
    """The flow of a ring that holds up all others: what leaves the one place that sent on less of what it got.

    Where that place is one rank without a log, what comes to it: the side is known then, and nothing else. None where it is no
    ring of like places, or where the others differ as well.
    """
    entering = {_edge(flow, places)[1]: flow for flow in flows}
    leaving = {_edge(flow, places)[0]: flow for flow in flows}
    is_ring = entering.keys() == leaving.keys() and len(entering) == len(flows) and _is_one_circle(leaving, places)
    if not is_ring or len({len(place) for place in entering}) > 1:
        return None
    # Two hosts that send to each other from one rank each may be a tree.
    if len(entering) < _LEAST_PLACES and any(entering[place].receiver == leaving[place].sender for place in entering):
        return None
    leads = {place: _sent(leaving[place]) - _got(entering[place]) for place in entering}
    least, *others = sorted(set(leads.values()))
    behind = [place for place, lead in leads.items() if lead == least]
    if len(behind) > 1 or len(others) != 1:
        return None
    return _held(entering[behind[0]], leaving[behind[0]], behind[0])


def unbegun(channels: Sequence[Sequence[Flow]], places: Places) -> tuple[Flow, ...]:
    """Flows of the one place that has made no step in any tree of a call, where nothing else tells which end is the lower one.

    Of two neighbours that sent each other as much, the lower one holds both up, and the same two may be in the other order in
    the next channel: the place that is among them in all of several channels needs no second fault. None where that is no
    single rank.
    """
    still = [pairs for each in channels if (pairs := _level_pairs(each, places))]
    if len(still) < _LEAST_TREES or len(still) < len(channels):
        return ()
    common = frozenset[Place].intersection(*(frozenset(place for pair in pairs for place in pair) for pairs in still))
    if len(common) != 1 or len(place := next(iter(common))) != 1:
        return ()
    # Those above it are as level with each other: it is the end of a path up to the root.
    if any(sum(place in pair for pair in pairs) != 1 for pairs in still):
        return ()
    return tuple(flow for pairs in still for pair in pairs if place in pair for flow in pairs[pair] if flow.holder in place)


def _level_pairs(flows: Sequence[Flow], places: Places) -> Mapping[frozenset[Place], tuple[Flow, Flow]]:
    """Neighbours in a tree of which neither has sent more, with the flows between them, that wait for GPUs."""
    edges = {_edge(flow, places): flow for flow in flows}
    joined = {edge for edge in edges if edge[::-1] in edges}
    if len({place for edge in joined for place in edge}) < _LEAST_PLACES:
        return {}
    found = {edge: (edges[edge], edges[edge[::-1]]) for edge in joined if edge[0] < edge[1]}
    return {frozenset(edge): both for edge, both in found.items() if _is_level(both)}


def _is_level(both: tuple[Flow, Flow]) -> bool:
    return _sent(both[0]) == _sent(both[1]) and all(flow.state is FlowState.GPU_NOT_READY for flow in both)


def _is_one_circle(leaving: Mapping[Place, Flow], places: Places) -> bool:
    return len(set(_around(leaving, places))) == len(leaving)


def _around(leaving: Mapping[Place, Flow], places: Places) -> Iterator[Place]:
    place = next(iter(leaving))
    for _ in leaving:
        yield place
        place = _edge(leaving[place], places)[1]


def _got(flow: Flow) -> int:
    """Steps that lie in the memory of the receiver, taken by its GPU or not."""
    return max(flow.receive.ready if flow.receive else 0, flow.send.done if flow.send else 0)


def _held(entering: Flow, leaving: Flow, place: Place) -> Flow | None:
    if leaving.state is FlowState.GPU_NOT_READY:
        return leaving
    is_side = len(place) == 1 and leaving.send is None and _is_taken(entering) and _is_offered(leaving)
    return replace(entering, state=FlowState.RECEIVER_SIDE) if is_side else None


def _is_taken(flow: Flow) -> bool:
    """Whether all that a sender handed over was acknowledged, by a receiver that left no log."""
    return flow.receive is None and flow.send is not None and flow.send.passed == flow.send.done


def _is_offered(flow: Flow) -> bool:
    """Whether a receiver has empty buffers for what a sender without a log does not send."""
    return flow.receive is not None and flow.receive.done == flow.receive.ready < flow.receive.posted
