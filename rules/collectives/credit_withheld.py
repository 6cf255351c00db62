"""A rank entered an operation, its proxy posts no receive for it, and chunks of others wait for credit, or for its own."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Belief, Cause, Confidence, Evidence, Finding, Mechanism, Resource
from forensics.rules.interface import Need, Rule
from forensics.rules.reductions.network.chunk_flows import OpenFlows
from forensics.rules.reductions.network.flow_ends import OF_PROXY, Flow, FlowState
from forensics.rules.reductions.network.flow_faults import (
    FaultyFlows,
    flow_evidence,
    flow_since,
    flow_stage,
    idle_evidence,
    is_left_out,
)
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.ranks.shim_logs import ChunkLogs
from forensics.rules.reductions.text import evidence_text
from forensics.rules.reductions.text.evidence_text import EvidenceText
from forensics.rules.reductions.text.seen import Seen

_STATES = OF_PROXY | {FlowState.RECEIVER_SIDE}
_MECHANISMS = {
    FlowState.NOT_SEEN: Mechanism("not_delivered", "remote"),
    FlowState.NOT_SERVED: Mechanism("not_transmitted", "local"),
    FlowState.NOT_STARTED: Mechanism("not_started", "local"),
}
_BY_RECEIVER = Mechanism("not_transmitted", "remote")


def _evaluate(roster: Roster, faulty: FaultyFlows, text: EvidenceText, open_flows: OpenFlows) -> Iterator[Finding]:
    seen: set[int] = set()
    # What a NIC acknowledged and the proxy did not see is shown by both ends, what it did not see of sends follows from it.
    for flow in sorted(
        (each for each in faulty if each.state in _STATES), key=lambda each: each.state is not FlowState.NOT_SEEN
    ):
        rank = flow.holder
        if rank is not None and rank not in seen:
            seen.add(rank)
            yield _finding(roster, text, flow, rank, serves=is_left_out(flow, open_flows))


def _finding(roster: Roster, text: EvidenceText, flow: Flow, rank: int, *, serves: bool) -> Finding:
    """A receiver without a log is the side: that its proxy does not run is one cause of several.

    Buffers to send from and to receive into are posted by the proxy, without the GPU: a rank that made the call and shows no
    step of it has a proxy that does not come to it.
    """
    other = flow.receiver if rank == flow.sender else flow.sender
    mechanism = _MECHANISMS.get(flow.state, _BY_RECEIVER)
    return Finding(
        ranks=(rank,),
        cause=Cause.UNKNOWN if flow.state is FlowState.RECEIVER_SIDE or serves else Cause.PROXY_DELAY,
        stage=flow_stage(flow),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY if _is_sure(flow) else Confidence.SUSPECT,
        evidence=(
            *flow_evidence(flow),
            *_unseen(flow),
            *_served(rank, serves),
            *idle_evidence(flow),
            *text.stack(rank),
            *text.process(rank),
        ),
        resource=Resource(nic=flow.receive.nic if flow.receive else None, channel=flow.channel, peer_ranks=(other,)),
        mechanism=_BY_RECEIVER if flow.state is FlowState.NOT_STARTED and rank == flow.receiver else mechanism,
        since=flow_since(roster, flow),
        next_steps=(
            f"check the NCCL proxy thread of rank {rank} (a native stack): is it scheduled, is it stuck",
            f"check CPU limits and pinning of the container of rank {rank}",
        ),
    )


def _is_sure(flow: Flow) -> bool:
    """Whether both ends tell what the proxy did not do, and nobody else had a part in it."""
    return flow.state is FlowState.NOT_SEEN or (flow.state is FlowState.NO_CREDIT and flow.send is not None)


def _unseen(flow: Flow) -> Iterator[Evidence]:
    if flow.state is FlowState.NOT_SEEN and flow.receive:
        acknowledged = flow.send.done if flow.send else flow.receive.total
        missed = f"{acknowledged} steps, its proxy has seen {flow.receive.ready} of them"
        yield Evidence(f"the NIC of rank {flow.receiver} acknowledged {missed}", flow.receive.source)


def _served(rank: int, serves: bool) -> Iterator[Evidence]:
    if serves:
        yield Evidence(f"the proxy of rank {rank} has posted buffers for later calls: it runs, and left this one out")


def _clears(seen: Seen, logs: ChunkLogs, open_flows: OpenFlows) -> str | None:
    if not open_flows or not seen.all_in(logs):
        return None
    return f"no sender of {evidence_text.counted(len(open_flows), 'open flow')} waits for credit"


RULE = Rule(
    code="FX143",
    name="credit-withheld",
    seed="Mycroft section 5.3, Table 4 (not transmitted, remote)",
    needs=(Need(ChunkLogs, "chunks", "only NCCL's profiler interface shows the state of chunks"),),
    concludes="A rank that is inside an operation and gives its sender no credit: its proxy does not run.",
    evaluate=_evaluate,
    clears=_clears,
)
