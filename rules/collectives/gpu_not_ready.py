"""A rank entered an operation, its chunks could move, and its own GPU neither produces nor consumes them."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Belief, Cause, Confidence, Finding, Granularity, Mechanism, Resource
from forensics.rules.interface import Need, Rule
from forensics.rules.reductions.hardware.gpu_errors import GpuErrors
from forensics.rules.reductions.network.chunk_flows import OpenFlows
from forensics.rules.reductions.network.flow_ends import Flow, FlowState
from forensics.rules.reductions.network.flow_faults import (
    FaultyFlows,
    flow_evidence,
    flow_since,
    flow_stage,
    left_by_proxy,
    sampled_evidence,
)
from forensics.rules.reductions.network.held_devices import HeldByEnded
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.ranks.shim_logs import ChunkLogs
from forensics.rules.reductions.text import evidence_text
from forensics.rules.reductions.text.evidence_text import EvidenceText
from forensics.rules.reductions.text.seen import Seen

_STATES = frozenset({FlowState.GPU_NOT_READY, FlowState.NOT_CONSUMED})
_MOST = 2


def _evaluate(
    roster: Roster, held: HeldByEnded, faulty: FaultyFlows, text: EvidenceText, errors: GpuErrors
) -> Iterator[Finding]:
    spared, elsewhere = left_by_proxy(faulty) | held, {_call(each) for each in faulty if each.state not in _STATES}
    holders: dict[int, Flow] = {}
    for flow in (each for each in faulty if each.state in _STATES):
        if flow.holder is not None and flow.holder not in spared and _call(flow) not in elsewhere:
            holders.setdefault(flow.holder, flow)
    # Devices of several ranks do not fail together: what they all stand in is a call that no log shows.
    if len(holders) <= _MOST:
        for rank, flow in holders.items():
            yield errors.refined(_finding(roster, text, flow, rank))


def _call(flow: Flow) -> tuple[str, int, str, object]:
    """All members of a collective wait for each other, also over ways inside a host that no log shows; messages stand alone."""
    return flow.communicator, flow.number, flow.kind, (flow.sender, flow.receiver) if flow.kind == "p2p" else None


def _finding(roster: Roster, text: EvidenceText, flow: Flow, rank: int) -> Finding:
    other = flow.receiver if rank == flow.sender else flow.sender
    own = next((end for end in flow.ends if end.rank == rank), None)
    repeated = own is None or own.samples > 0
    return Finding(
        ranks=(rank,),
        cause=Cause.COMPUTE_HANG,
        stage=flow_stage(flow),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY if flow.send and flow.receive and repeated else Confidence.SUSPECT,
        evidence=(*flow_evidence(flow), *(sampled_evidence(own) if own else ()), *text.stack(rank), *text.process(rank)),
        granularity=Granularity.GPU,
        resource=Resource(channel=flow.channel, peer_ranks=(other,)),
        mechanism=Mechanism("gpu_not_ready", "local"),
        since=flow_since(roster, flow),
        next_steps=(
            f"check the GPU of rank {rank}: Xid in the kernel log, nvidia-smi, clocks and power against its peers",
            "a kernel in front of the collective on the same stream looks the same: see what was launched before it",
        ),
    )


def _clears(seen: Seen, logs: ChunkLogs, open_flows: OpenFlows) -> str | None:
    if not open_flows or not seen.all_in(logs):
        return None
    return f"in {evidence_text.counted(len(open_flows), 'open flow')} no GPU holds chunks back on its own"


RULE = Rule(
    code="FX144",
    name="gpu-not-ready",
    seed="Mycroft section 5.3, Table 4 (GPU not ready)",
    needs=(Need(ChunkLogs, "chunks", "the state of chunks is told by NCCL's profiler interface only"),),
    concludes="A rank whose GPU does not produce or consume chunks although nothing else holds it up.",
    evaluate=_evaluate,
    clears=_clears,
)
