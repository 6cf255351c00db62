"""Open flows that explain a stall: which of them stand still on their own account, and how a report speaks of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from forensics.model import Component, Evidence, Since, StageName, StageRef
from forensics.rules.reductions.job import Job
from forensics.rules.reductions.mismatch.call_mismatches import blocking
from forensics.rules.reductions.network.chunk_flows import NETWORK, Flow, FlowEnd, FlowState
from forensics.rules.reductions.waits.graph import Root, Wait


def faulty_flows(job: Job, states: Collection[FlowState]) -> tuple[Flow, ...]:
    """Roots among the open flows that are in one of `states`, in flow order.

    Calls that do not match leave flows that can never finish: that is no fault of the flow. A rank whose NIC reported an error
    has its proxy stopped by it.
    """
    disputed = {dispute.communicator for dispute in blocking(job)}
    broken = {pair.rank for pair in job.queue_pairs if pair.status is not None}
    found = [flow for flow in job.root_flows if flow.state in states and flow.communicator not in disputed]
    return tuple(flow for flow in found if flow.holder not in broken and not _explained_above(job, flow))


def _explained_above(job: Job, flow: Flow) -> bool:
    """Whether the recorder says that the device which holds a flow up is itself held up, in another operation.

    A device works off its operations in order: it does nothing for this flow while it is in an earlier one, whose part inside
    a host no flow shows. What the network itself does not deliver is seen where it is.
    """
    if flow.state in NETWORK or flow.holder is None or job.calls_from_shim or not job.graph.roots:
        return False
    if not job.rank(flow.holder).has_recorder:
        return False
    roots = [root for root in job.graph.roots if flow.holder in root.ranks]
    return not any(_is_of(job, root, flow) for root in roots)


def _is_of(job: Job, root: Root, flow: Flow) -> bool:
    """Whether a root of the graph of waits is the operation of a flow; recorder and library name communicators differently."""
    for wait in root.waits:
        if wait.peers:
            if flow.kind == "p2p" and wait.peers == (flow.sender, flow.receiver):
                return True
        elif any(call is not None and call.kind == flow.kind for call in wait.waiting.values()) and _same_members(
            job, wait, flow
        ):
            return True
    return False


def _same_members(job: Job, wait: Wait, flow: Flow) -> bool:
    return _members(job, wait.communicator) == (_members(job, flow.communicator) or frozenset())


def _members(job: Job, communicator: str) -> frozenset[int] | None:
    """Members of a communicator that the recorder or a log shows calls of; None for one that nothing shows."""
    return next((frozenset(group.members) for group in reversed(job.groups) if group.label == communicator), None)


def flow_evidence(flow: Flow) -> Iterator[Evidence]:
    """What both ends count."""
    what = f"{flow.kind.replace('p2p', 'send')} {flow.number} of {flow.communicator}, channel {flow.channel}"
    if flow.send:
        end = flow.send
        counts = f"{end.ready} of {end.total} steps ready on its GPU, {end.passed} handed to the NIC, {end.done} completed"
        yield Evidence(f"rank {flow.sender} sends to rank {flow.receiver} in {what}: {counts}; {_still(end)}", end.source)
    else:
        yield Evidence(f"rank {flow.sender} shows no open send to rank {flow.receiver} in {what}")
    if flow.receive:
        end = flow.receive
        counts = f"{end.posted} of {end.total} steps posted, {end.ready} arrived, {end.done} consumed by its GPU"
        yield Evidence(f"rank {flow.receiver} receives it: {counts}; {_still(end)}", end.source)
    else:
        yield Evidence(f"rank {flow.receiver} shows no open receive for it")


def _still(end: FlowEnd) -> str:
    return f"nothing moved for {end.stuck_ns / 1e9:.1f} s"


def pair_evidence(job: Job, rank: int, peer: int) -> Iterator[Evidence]:
    """Queue pairs of `rank` towards `peer` with old requests in flight."""
    for pair in job.queue_pairs:
        if pair.rank == rank and pair.peer == peer and pair.age_ns is not None and pair.status is None:
            held = f"{pair.in_flight} signaled requests in flight, the oldest for {pair.age_ns / 1e9:.1f} s"
            yield Evidence(f"queue pair {pair.name} of rank {rank} to rank {peer} has {held}", pair.source)


def flow_stage(flow: Flow) -> StageRef:
    """The operation the flow belongs to; logs of a library do not tell the stage of the program."""
    return StageRef(
        name=StageName.UNKNOWN,
        component=Component.COMMUNICATION,
        operation="send" if flow.kind == "p2p" else flow.kind,
        communicator=flow.communicator,
        sequence=flow.number,
    )


def flow_since(job: Job, flow: Flow) -> Since | None:
    """When the flow moved last, on the clock of the end that tells it."""
    if not flow.ends:
        return None
    end = max(flow.ends, key=lambda known: known.since_ns)
    host = job.roster.host_of(end.rank)
    return Since(end.since_ns, f"{host} realtime" if host else "realtime of the recording host", 0)
