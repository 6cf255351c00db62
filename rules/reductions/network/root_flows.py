"""Which open flows stand still on their own account: whoever holds one is itself blocked by no other flow and no other rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from forensics.rules.reductions.network.call_shapes import Places, Tree, channels_of_calls, feeds, run_dry, tree_of, unbegun
from forensics.rules.reductions.network.flow_ends import NETWORK, Flow, FlowState
from forensics.rules.reductions.network.host_places import Place, place_of

# Below this a flow may only be between two polls of its proxy, or wait for a kernel of ordinary length.
LEAST_STUCK_NS = 1_000_000_000
_OF_GPU = frozenset({FlowState.GPU_NOT_READY, FlowState.NOT_CONSUMED, FlowState.NOT_STARTED})
_NOWHERE: Places = {}


@dataclass(frozen=True, slots=True)
class _Stuck:
    """Flows in which nothing moves: by their ranks, with the trees of their calls and the ranks that share a host.

    Those of a rank are also those in which its own end alone stands still: the log of the other one may have ended before.
    """

    by_rank: Mapping[int, Collection[Flow]]
    trees: Mapping[tuple[str, int, str, int], Tree]
    places: Places
    waits_for: Mapping[int, Collection[int]]

    def tree(self, flow: Flow) -> Tree:
        return self.trees.get((flow.communicator, flow.number, flow.kind, flow.channel), Tree())


def root_flows(flows: Iterable[Flow], waits_for: Mapping[int, Collection[int]], places: Places = _NOWHERE) -> tuple[Flow, ...]:
    """Flows that stand still on their own account: no rank that holds one is itself blocked by another flow or another rank.

    `waits_for` are ranks that wait for others to make a call, `places` members of communicators that share a host. Where all
    flows of a call wait for each other, it is the one by which its ring ran dry.
    """
    flows = tuple(flows)
    stuck = [flow for flow in flows if flow.ends and all(end.stuck_ns >= LEAST_STUCK_NS for end in flow.ends)]
    channels = channels_of_calls(stuck)
    known = _Stuck(_by_rank(flows), {key: tree_of(each, places) for key, each in channels.items()}, places, waits_for)
    alone = tuple(flow for flow in stuck if flow.state in NETWORK or _on_its_own(flow, known))
    found = tuple(flow for flow in alone if flow.state is not FlowState.RECEIVER_SIDE or _has_all(flow, stuck))
    explained = {(flow.communicator, flow.number, flow.kind) for flow in found}
    dry = (run_dry(each, places) for key, each in sorted(channels.items()) if key[:3] not in explained)
    first = (flow for call in _calls(channels) if call not in explained for flow in unbegun(_of_call(channels, call), places))
    held = (*(flow for flow in dry if flow is not None), *first)
    return (*found, *(flow for flow in held if not _is_elsewhere(flow, known)))


def _calls(channels: Iterable[tuple[str, int, str, int]]) -> list[tuple[str, int, str]]:
    return sorted({(label, number, kind) for label, number, kind, _ in channels})


def _of_call(
    channels: Mapping[tuple[str, int, str, int], tuple[Flow, ...]], call: tuple[str, int, str]
) -> list[tuple[Flow, ...]]:  # fmt: skip
    return [flows for (*one, _), flows in sorted(channels.items()) if (*one,) == call]


def _by_rank(flows: Iterable[Flow]) -> Mapping[int, Collection[Flow]]:
    found: dict[int, list[Flow]] = defaultdict(list)
    for flow in flows:
        for end in flow.ends:
            if end.stuck_ns >= LEAST_STUCK_NS:
                found[end.rank].append(flow)
    return found


def _is_elsewhere(flow: Flow, known: _Stuck) -> bool:
    """Whether a member of the place that holds a flow waits for others in an earlier call, or to make one."""
    return any(
        known.waits_for.get(member)
        or any(_holds_up(other, flow, member, known) for other in known.by_rank.get(member, ()) if not _is_of_call(other, flow))
        for member in _movers(flow, known)
    )


def _has_all(flow: Flow, others: Iterable[Flow]) -> bool:
    """Whether those to whom a receiver without a log has to send offer it buffers: without that it may wait for them."""
    onward = [
        each.receive
        for each in others
        if (each.sender, each.communicator, each.number) == (flow.receiver, flow.communicator, flow.number)
    ]
    return bool(onward) and all(end is not None and end.done == end.ready < end.posted for end in onward)


def _on_its_own(flow: Flow, known: _Stuck) -> bool:
    """Whether none of those who have a part in moving it on is blocked."""
    if flow.holder is None or flow.state is FlowState.NOT_ENTERED or _is_queued(flow, known):
        return False
    return not any(
        known.waits_for.get(member) or any(_holds_up(other, flow, member, known) for other in known.by_rank.get(member, ()))
        for member in _movers(flow, known)
    )


def _is_queued(flow: Flow, known: _Stuck) -> bool:
    """Whether a flow that was not begun is behind an open one of the same connection: a proxy works these off one by one.

    It serves other connections meanwhile (`ProxyAppend` of src/proxy.cc chains operations of one peer).
    """
    if flow.state is not FlowState.NOT_STARTED or flow.holder is None:
        return False
    own = known.by_rank.get(flow.holder, ())
    return any(other.kind == flow.kind and flow.comes_behind(other) and not other.is_unseen_at(flow.holder) for other in own)


def _movers(flow: Flow, known: _Stuck) -> Place:
    """Who has a part in moving a flow on: its holder, and where GPUs have to, all that hand its steps on inside the host."""
    if flow.holder is None:
        return ()
    return place_of(known.places, flow, flow.holder) if flow.state in _OF_GPU else (flow.holder,)


def _holds_up(other: Flow, flow: Flow, member: int, known: _Stuck) -> bool:
    """Whether `other` must move before `member` can move `flow`: it comes earlier, or feeds the same operation."""
    at = other.order_at(member)
    own = _movers(flow, known)
    if other is flow or at is None or other.holder in own:
        return False
    place = _latest_place(flow, known.by_rank.get(member, ()), member)
    if _is_of_call(other, flow) and not (place is not None and _is_message_left_out(flow, other, member)):
        return flow.state in _OF_GPU and _is_needed(other, flow, own, known)
    return place is None or at < place


def _is_needed(other: Flow, flow: Flow, own: Place, known: _Stuck) -> bool:
    """Channels of a collective move each for itself; messages of one number may be one operation."""
    if flow.kind == "p2p":
        return True
    return other.channel == flow.channel and feeds(other, flow, own, known.tree(flow), known.places)


def _is_message_left_out(flow: Flow, other: Flow, holder: int) -> bool:
    """Whether the holder shows no step of a message, and the other flow is a message between other ranks.

    Messages are counted by pair of ranks: an equal number of another pair makes them no one operation.
    """
    is_other = (other.sender, other.receiver) != (flow.sender, flow.receiver)
    return flow.kind == "p2p" and flow.is_unseen_at(holder) and is_other


def _is_of_call(other: Flow, flow: Flow) -> bool:
    return (other.communicator, other.number, other.kind) == (flow.communicator, flow.number, flow.kind)


def _latest_place(flow: Flow, others: Iterable[Flow], holder: int) -> int | None:
    """Place of the call of a flow at its holder; where that end shows no step, the first one behind it of the same kind.

    Calls of one kind between the same ranks are made in the order of their numbers.
    """
    known = flow.order_at(holder)
    if known is not None:
        return known
    same = [each.order_at(holder) for each in others if _is_of_call(each, flow)]
    if flow.holder != holder and same:
        return same[0]
    behind = (each.order_at(holder) for each in others if each.kind == flow.kind and each.comes_behind(flow))
    return min((place for place in behind if place is not None), default=None)
