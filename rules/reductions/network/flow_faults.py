"""Open flows that explain a stall: which of them stand still on their own account, and how a report speaks of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NewType

from forensics.model import Component, Evidence, Since, StageRef
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.mismatch.disagreements import BlockingMismatches
from forensics.rules.reductions.network.chunk_flows import OpenFlows
from forensics.rules.reductions.network.flow_ends import NETWORK, OF_PROXY, Flow, FlowEnd, FlowState
from forensics.rules.reductions.network.held_devices import HeldDevices
from forensics.rules.reductions.network.host_places import HostPlaces
from forensics.rules.reductions.network.root_flows import root_flows
from forensics.rules.reductions.network.work_requests import LEAST_AGE_NS, QueuePair, QueuePairs
from forensics.rules.reductions.ranks.roster import RankFacts, RecordedRanks, Roster
from forensics.rules.reductions.waits.graph import Root, Wait, WaitGraph

FaultyFlows = NewType("FaultyFlows", tuple[Flow, ...])
"""Open flows that are the roots of a stall."""
RootFlows = NewType("RootFlows", tuple[Flow, ...])
"""Open flows that stand still on their own account."""


@reduction
def faulty_flows(
    roots: RootFlows,
    flows: OpenFlows,
    mismatches: BlockingMismatches,
    pairs: QueuePairs,
    calls: Calls,
    groups: Communicators,
    graph: WaitGraph,
    recorded: RecordedRanks,
    held: HeldDevices,
) -> FaultyFlows:
    """Flows that stand still on their own account, in flow order.

    Calls that do not match leave flows that can never finish: that is no fault of the flow. A rank whose NIC reported an error
    has its proxy stopped by it. A device that a call inside its host may hold is not accused: one with a rank that left no log,
    or, where only logs of the library tell calls, one with a victim of a call that was not made elsewhere.
    """
    mismatched = {mismatch.communicator for mismatch in mismatches}
    broken = {pair.rank for pair in pairs if pair.status is not None}
    known = frozenset() if calls.from_shim or not graph.roots else recorded
    return FaultyFlows(
        tuple(
            flow
            for flow in roots
            if flow.communicator not in mismatched
            and flow.holder not in broken
            and not (flow.holder in known and _explained_above(groups, graph, flow))
            and not (flow.state not in NETWORK and flow.holder in held and not is_left_out(flow, flows))
            and not (flow.state is FlowState.RECEIVER_SIDE and _may_lack_it(flow, graph, flows))
        )
    )


def is_left_out(flow: Flow, others: Iterable[Flow]) -> bool:
    """Whether the proxy of the holder did not begin this call, and has posted steps of a later one: then it runs."""
    if flow.state is not FlowState.NOT_STARTED:
        return False
    at = None if flow.holder is None else flow.order_at(flow.holder)
    own = ((each, end) for each in others for end in each.ends if end.rank == flow.holder and end.posted)
    return any(each.comes_behind(flow) or (at is not None and end.order > at) for each, end in own)


def _may_lack_it(flow: Flow, graph: WaitGraph, flows: OpenFlows) -> bool:
    """Whether a receiver without a log may not have made a call that others wait in."""
    began = _began(flows)
    return any((wait.communicator, wait.sequence, flow.receiver) not in began for wait in graph.lacking.get(flow.receiver, ()))


def _began(flows: Iterable[Flow]) -> frozenset[tuple[str, int, int]]:
    """Calls that a rank made, for the other end of an open flow shows steps of it, with a log of its own or without."""
    sent = {(flow.communicator, flow.number, flow.sender) for flow in flows if flow.receive is not None and flow.receive.ready}
    given = {(flow.communicator, flow.number, flow.receiver) for flow in flows if flow.send is not None and flow.send.passed}
    return frozenset(sent | given)


def _explained_above(groups: Communicators, graph: WaitGraph, flow: Flow) -> bool:
    """Whether the recorder says that the device which holds a flow up is itself blocked, in another operation.

    A device works off its operations in order: it does nothing for this flow while it is in an earlier one, whose part inside
    a host no flow shows. What the network itself does not deliver is seen where it is.
    """
    roots = [root for root in graph.roots if flow.holder in root.ranks]
    return flow.state not in NETWORK and not any(_is_of(groups, root, flow) for root in roots)


def _is_of(groups: Communicators, root: Root, flow: Flow) -> bool:
    """Whether a root of the graph of waits is the operation of a flow; recorder and library name communicators differently."""
    for wait in root.waits:
        if wait.peers:
            if flow.kind == "p2p" and wait.peers == (flow.sender, flow.receiver):
                return True
        elif any(call is not None and call.kind == flow.kind for call in wait.waiting.values()):
            members = _members(groups, wait.communicator)
            if members == (_members(groups, flow.communicator) or frozenset()):
                return True
    return False


def _members(groups: Communicators, communicator: str) -> frozenset[int] | None:
    """Members of a communicator that the recorder or a log shows calls of; None for one that nothing shows."""
    return next((frozenset(group.members) for group in reversed(groups) if group.label == communicator), None)


def left_by_proxy(flows: FaultyFlows) -> frozenset[int]:
    """Ranks whose proxy does not serve the earliest flow that they hold: their GPUs wait for it in this one and behind it."""
    first: dict[int, tuple[int, bool]] = {}
    for flow in flows:
        if flow.holder is not None:
            place = (flow.order_at(flow.holder) or _called_at(flow, flows), flow.state not in OF_PROXY)
            first[flow.holder] = min(first.get(flow.holder, place), place)
    return frozenset(rank for rank, (_, is_of_gpu) in first.items() if not is_of_gpu)


def _called_at(flow: Flow, flows: FaultyFlows) -> int:
    """Place of the call of a holder that shows no step of it: that of its other flows of the operation, else before all."""
    same = [
        each for each in flows if (each.communicator, each.number, each.kind) == (flow.communicator, flow.number, flow.kind)
    ]
    return min((place for each in same if (place := each.order_at(flow.holder or 0)) is not None), default=0)


def flow_evidence(flow: Flow) -> Iterator[Evidence]:
    """What both ends count."""
    what = f"{flow.kind.replace('p2p', 'send')} {flow.number} of {flow.communicator}, channel {flow.channel}"
    if flow.send:
        end = flow.send
        counts = f"{end.ready} of {end.total} steps ready on its GPU, {end.passed} handed to the NIC, {end.done} completed"
        on = "" if end.sent_by is None else f" over the NIC of rank {end.sent_by} (PXN)"
        yield Evidence(f"rank {flow.sender} sends to rank {flow.receiver}{on} in {what}: {counts}; {_still(end)}", end.source)
    else:
        yield Evidence(f"rank {flow.sender} shows no open send to rank {flow.receiver} in {what}")
    if flow.receive:
        end = flow.receive
        counts = f"{end.posted} of {end.total} steps posted, {end.ready} arrived, {end.done} consumed by its GPU"
        yield Evidence(f"rank {flow.receiver} receives it: {counts}; {_still(end)}", end.source)
    elif flow.state in (FlowState.NOT_ACKNOWLEDGED, FlowState.RECEIVER_SIDE):
        yield Evidence(
            f"rank {flow.receiver} left no log: the queue pair of rank {flow.sender} shows the side only", None, False
        )
    else:
        yield Evidence(f"rank {flow.receiver} shows no open receive for it")


def idle_evidence(flow: Flow) -> Iterator[Evidence]:
    """What the sender's queue pairs say of chunks that wait for credit: with none in flight its NIC has nothing to do."""
    end = flow.send
    if end is None or end.in_flight is None:
        return
    if not end.in_flight:
        yield Evidence(f"the NIC of rank {flow.proxy} is idle for it: no request in flight on its queue pairs", end.source)
    elif (end.oldest_ns or 0) >= LEAST_AGE_NS:
        held = f"{end.in_flight} requests in flight, the oldest for {(end.oldest_ns or 0) / 1e9:.1f} s"
        yield Evidence(f"the queue pairs of rank {end.rank} for it have {held}", end.source, supports=False)


def sampled_evidence(end: FlowEnd) -> Iterator[Evidence]:
    """How often a state was seen: one look cannot tell a state that lasts from one between two steps."""
    if end.samples:
        yield Evidence(f"{end.samples} earlier samples of rank {end.rank} show the same counts", end.source)
    else:
        yield Evidence(f"no earlier sample of rank {end.rank} shows the same counts", None, supports=False)


def _still(end: FlowEnd) -> str:
    return f"nothing moved for {end.stuck_ns / 1e9:.1f} s"


def queue_pair_of(pairs: QueuePairs, flow: Flow) -> QueuePair | None:
    """The troubled queue pair that a flow leaves on: that which carries it, else one between its ranks of unknown use."""
    ours = [pair for pair in pairs if pair.rank == flow.proxy]
    carried = (flow.communicator, flow.channel, "send")
    own = [pair for pair in ours if (pair.communicator, pair.channel, pair.direction) == carried]
    between = [pair for pair in ours if pair.peer == flow.receiver and pair.communicator is None]
    return next(iter([*own, *between]), None)


def pair_evidence(pairs: QueuePairs, flow: Flow) -> Iterator[Evidence]:
    """Old requests in flight on the queue pair of a flow."""
    rank, peer, pair = flow.proxy, flow.receiver, queue_pair_of(pairs, flow)
    if pair is not None and pair.age_ns is not None and pair.status is None:
        held = f"{pair.in_flight} signaled requests in flight, the oldest for {pair.age_ns / 1e9:.1f} s"
        yield Evidence(f"queue pair {pair.name} of rank {rank} to rank {peer} has {held}", pair.source)


def flow_stage(flow: Flow) -> StageRef:
    """The operation the flow belongs to; logs of a library do not tell the stage of the program."""
    return StageRef(
        component=Component.COMMUNICATION,
        operation="send" if flow.kind == "p2p" else flow.kind,
        communicator=flow.communicator,
        sequence=flow.number,
    )


def flow_since(roster: Roster, flow: Flow) -> Since | None:
    """When the flow moved last, on the clock of the end that tells it."""
    if not flow.ends:
        return None
    end = max(flow.ends, key=lambda known: known.since_ns)
    return roster.since(end.rank, end.since_ns)


@reduction
def standing_flows(flows: OpenFlows, ranks: Roster, graph: WaitGraph, places: HostPlaces) -> RootFlows:
    """Roots among flows between processes that live, in flow order: the log of one that does not is out of date.

    A rank with an open flow from or to one that is gone waits for it: what its GPU does not move on is no fault of its own.
    """
    if not flows:
        return RootFlows(())
    gone = {rank for rank, facts in ranks.ranks.items() if facts.dead or facts.stopped or facts.heartbeat_gap_ns}
    alive = [flow for flow in flows if flow.sender not in gone and flow.receiver not in gone]
    elsewhere, left = _elsewhere(ranks.ranks, graph, _began(flows)), _left_by(flows, gone)
    waits_for = {rank: (*elsewhere.get(rank, ()), *left.get(rank, ())) for rank in {*elsewhere, *left}}
    return RootFlows(root_flows(alive, waits_for, places))


def _left_by(flows: OpenFlows, gone: Collection[int]) -> Mapping[int, Collection[int]]:
    """Ranks that are gone, by the living ones with an open flow from or to them."""
    found: dict[int, set[int]] = defaultdict(set)
    for flow in flows:
        for living, other in ((flow.sender, flow.receiver), (flow.receiver, flow.sender)):
            if other in gone and living not in gone:
                found[living].add(other)
    return found


def _elsewhere(
    ranks: Mapping[int, RankFacts], graph: WaitGraph, began: Collection[tuple[str, int, int]]
) -> Mapping[int, Collection[int]]:
    """Whom each rank waits for to make a call; whom it waits for because of a flow itself is no other reason to wait."""
    dead = {rank for rank, facts in ranks.items() if facts.dead}
    missing = {
        rank: frozenset(whom for whom in wait.missing if (wait.communicator, wait.sequence, whom) not in began)
        for rank, wait in _first_waits(graph).items()
    }
    return {
        rank: tuple(whom for whom in awaited if whom in dead or whom in missing.get(rank, ()))
        for rank, awaited in graph.waits_for.items()
    }


def _first_waits(graph: WaitGraph) -> Mapping[int, Wait]:
    """The first call that each rank waits in: whom it lacks has not made it."""
    first: dict[int, tuple[int, Wait]] = {}
    for wait in graph.waits:
        for rank, call in wait.waiting.items():
            order = call.order if call is not None else 0
            if rank not in first or order < first[rank][0]:
                first[rank] = (order, wait)
    return {rank: wait for rank, (_, wait) in first.items()}
