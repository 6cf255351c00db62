"""A rank entered an operation, its proxy posts no receive for it, and the sender's chunks wait for credit."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Belief, Cause, Confidence, Finding, Mechanism, Resource
from forensics.rules.interface import Need, Rule
from forensics.rules.reductions.network.chunk_flows import Flow, FlowState, OpenFlows
from forensics.rules.reductions.network.flow_faults import (
    FaultyFlows,
    flow_evidence,
    flow_since,
    flow_stage,
    idle_evidence,
)
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.ranks.shim_logs import ChunkLogs
from forensics.rules.reductions.text import evidence_text
from forensics.rules.reductions.text.evidence_text import EvidenceText
from forensics.rules.reductions.text.seen import Seen

_STATES = frozenset({FlowState.NO_CREDIT, FlowState.RECEIVER_SIDE})


def _evaluate(roster: Roster, faulty: FaultyFlows, text: EvidenceText) -> Iterator[Finding]:
    seen: set[int] = set()
    for flow in (each for each in faulty if each.state in _STATES):
        if flow.receiver not in seen:
            seen.add(flow.receiver)
            yield _finding(roster, text, flow)


def _finding(roster: Roster, text: EvidenceText, flow: Flow) -> Finding:
    """A receiver without a log is the side: that its proxy does not run is one cause of several."""
    known = flow.state is FlowState.NO_CREDIT
    return Finding(
        ranks=(flow.receiver,),
        cause=Cause.PROXY_DELAY if known else Cause.UNKNOWN,
        stage=flow_stage(flow),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY if known else Confidence.SUSPECT,
        evidence=(*flow_evidence(flow), *idle_evidence(flow), *text.stack(flow.receiver), *text.process(flow.receiver)),
        resource=Resource(nic=flow.receive.nic if flow.receive else None, channel=flow.channel, peer_ranks=(flow.sender,)),
        mechanism=Mechanism("not_transmitted", "remote"),
        since=flow_since(roster, flow),
        next_steps=(
            f"look at the NCCL proxy thread of rank {flow.receiver} (a native stack): is it scheduled, is it stuck",
            f"check CPU limits and pinning of the container of rank {flow.receiver}",
        ),
    )


def _clears(seen: Seen, logs: ChunkLogs, open_flows: OpenFlows) -> str | None:
    if not open_flows or not seen.all_in(logs):
        return None
    return f"no sender of {evidence_text.counted(len(open_flows), 'open flow')} waits for credit"


RULE = Rule(
    code="FX143",
    name="credit-withheld",
    seed="Mycroft section 5.3, Table 4 (not transmitted, remote)",
    needs=(Need(ChunkLogs, "chunks", "the state of chunks is told by NCCL's profiler interface only"),),
    concludes="A rank that is inside an operation and gives its sender no credit: its proxy does not run.",
    evaluate=_evaluate,
    clears=_clears,
)
