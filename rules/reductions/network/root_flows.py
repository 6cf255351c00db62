"""Which open flows stand still on their own account: whoever holds one is itself blocked by no other flow and no other rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from forensics.rules.reductions.network.flow_ends import NETWORK, Flow, FlowState

# Below this a flow may only be between two polls of its proxy, or wait for a kernel of ordinary length.
LEAST_STUCK_NS = 1_000_000_000
_OF_GPU = frozenset({FlowState.GPU_NOT_READY, FlowState.NOT_CONSUMED, FlowState.NOT_STARTED})


def root_flows(flows: Iterable[Flow], waits_for: Mapping[int, Collection[int]]) -> tuple[Flow, ...]:
    """Flows that stand still on their own account: no rank that holds one is itself blocked by another flow or another rank.

    `waits_for` are ranks that wait for others to make a call.
    """
    stuck = [flow for flow in flows if flow.ends and all(end.stuck_ns >= LEAST_STUCK_NS for end in flow.ends)]
    by_rank: dict[int, list[Flow]] = defaultdict(list)
    for flow in stuck:
        for end in flow.ends:
            by_rank[end.rank].append(flow)
    alone = tuple(flow for flow in stuck if flow.state in NETWORK or _on_its_own(flow, by_rank, waits_for))
    return tuple(flow for flow in alone if flow.state is not FlowState.RECEIVER_SIDE or _has_all(flow, stuck))


def _has_all(flow: Flow, others: Iterable[Flow]) -> bool:
    """Whether those to whom a receiver without a log has to send offer it buffers: without that it may wait for them."""
    onward = [
        each.receive
        for each in others
        if (each.sender, each.communicator, each.number) == (flow.receiver, flow.communicator, flow.number)
    ]
    return bool(onward) and all(end is not None and end.done == end.ready < end.posted for end in onward)


def _on_its_own(flow: Flow, by_rank: Mapping[int, Collection[Flow]], waits_for: Mapping[int, Collection[int]]) -> bool:
    holder = flow.holder
    if holder is None or flow.state is FlowState.NOT_ENTERED or waits_for.get(holder):
        return False
    others = [other for other in by_rank.get(holder, ()) if other is not flow]
    return not any(_holds_up(other, flow, holder, others) for other in others)


def _holds_up(other: Flow, flow: Flow, holder: int, others: Collection[Flow]) -> bool:
    """Whether `other` must move before `holder` can move `flow`: it comes earlier, or feeds the same operation."""
    at, place = other.order_at(holder), _latest_place(flow, others, holder)
    if at is None or other.holder == holder:
        return False
    same = (other.communicator, other.number, other.kind) == (flow.communicator, flow.number, flow.kind)
    if same and not (place is not None and _is_message_left_out(flow, other, holder)):
        return flow.state in _OF_GPU
    return place is None or at < place


def _is_message_left_out(flow: Flow, other: Flow, holder: int) -> bool:
    """Whether the holder shows no step of a message, and the other flow is a message between other ranks.

    Messages are counted by pair of ranks: an equal number of another pair makes them no one operation.
    """
    is_other = (other.sender, other.receiver) != (flow.sender, flow.receiver)
    return flow.kind == "p2p" and flow.order_at(holder) is None and is_other


def _latest_place(flow: Flow, others: Iterable[Flow], holder: int) -> int | None:
    """Place of the call of a flow at its holder; where that end shows no step, the first one behind it of the same kind.

    Calls of one kind between the same ranks are made in the order of their numbers.
    """
    known = flow.order_at(holder)
    if known is not None:
        return known
    behind = (each.order_at(holder) for each in others if each.kind == flow.kind and each.comes_behind(flow))
    return min((place for place in behind if place is not None), default=None)
