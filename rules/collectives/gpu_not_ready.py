"""A rank entered an operation, its chunks could move, and its own GPU neither produces nor consumes them."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Belief, Cause, Confidence, Evidence, Finding, Granularity, Mechanism, Members, Resource
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
from forensics.rules.reductions.network.host_calls import HeldInHosts
from forensics.rules.reductions.network.host_places import HostPlaces, Place, place_of
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.ranks.shim_logs import ChunkLogs
from forensics.rules.reductions.text import evidence_text
from forensics.rules.reductions.text.evidence_text import EvidenceText, ranks_text
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.reductions.waits.launch_orders import OrderInversions

_STATES = frozenset({FlowState.GPU_NOT_READY, FlowState.NOT_CONSUMED})
_MOST = 2
_SHOWN = 4


def _evaluate(
    roster: Roster,
    held: HeldByEnded,
    faulty: FaultyFlows,
    open_flows: OpenFlows,
    places: HostPlaces,
    text: EvidenceText,
    errors: GpuErrors,
    inversions: OrderInversions,
    inside: HeldInHosts,
) -> Iterator[Finding]:
    spared, elsewhere, tangled = left_by_proxy(faulty) | held | inside, _failing(faulty), _tangled(inversions)
    holders: dict[Place, Flow] = {}
    for flow in (each for each in faulty if each.state in _STATES and each.communicator not in tangled):
        if flow.holder is not None and flow.holder not in spared and _call(flow) not in elsewhere:
            holders.setdefault(_devices(place_of(places, flow, flow.holder), flow, faulty, open_flows), flow)
    # Devices of several ranks do not fail together: what they all stand in is a call that no log shows.
    if len(holders) <= _MOST:
        for ranks, flow in holders.items():
            yield errors.refined(_finding(roster, text, flow, ranks))


def _tangled(inversions: OrderInversions) -> frozenset[str]:
    """Communicators whose calls were launched in orders that contradict each other: each device is in another one (FX132)."""
    return frozenset(wait.communicator for found in inversions if found.order == "enqueued" for wait in found.waits)


def _failing(faulty: FaultyFlows) -> set[tuple[str, int, str, object]]:
    return {_call(each) for each in faulty if each.state not in _STATES}


def _devices(place: Place, flow: Flow, faulty: FaultyFlows, open_flows: OpenFlows) -> Place:
    """Ranks of which one holds a flow up: those that hand its steps on inside the host.

    Where channels enter the host at each of them, it is the one at which alone chunks lie that nobody takes.
    """
    taken = {each.receiver for each in open_flows if _call(each) == _call(flow)} & {*place}
    left = {each.receiver for each in faulty if each.state is FlowState.NOT_CONSUMED and _call(each) == _call(flow)} & {*place}
    return tuple(left) if len(left) == 1 and taken == {*place} else place


def _call(flow: Flow) -> tuple[str, int, str, object]:
    """All members of a collective wait for each other, also over ways inside a host that no log shows; messages stand alone."""
    return flow.communicator, flow.number, flow.kind, (flow.sender, flow.receiver) if flow.kind == "p2p" else None


def _finding(roster: Roster, text: EvidenceText, flow: Flow, ranks: Place) -> Finding:
    rank = flow.holder
    other = flow.receiver if rank == flow.sender else flow.sender
    own = next((end for end in flow.ends if end.rank == rank), None)
    repeated = own is None or own.samples > 0
    texts = [each for one in ranks for each in (*text.stack(one), *text.process(one))]
    return Finding(
        ranks=ranks,
        cause=Cause.COMPUTE_HANG,
        stage=flow_stage(flow),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY if flow.send and flow.receive and repeated else Confidence.SUSPECT,
        evidence=(*flow_evidence(flow), *_inside(roster, ranks), *(sampled_evidence(own) if own else ()), *texts[:_SHOWN]),
        granularity=Granularity.GPU,
        members=Members.ONE_OF if len(ranks) > 1 else Members.EACH,
        resource=Resource(channel=flow.channel, peer_ranks=(other,)),
        mechanism=Mechanism("gpu_not_ready", "local"),
        since=flow_since(roster, flow),
        next_steps=(
            f"check the GPU of {ranks_text(ranks)}: Xid in the kernel log, nvidia-smi, clocks and power against its peers",
            "a kernel queued before it on the same stream leaves the same evidence: check what was launched first",
        ),
    )


def _inside(roster: Roster, ranks: Place) -> Iterator[Evidence]:
    if len(ranks) > 1:
        where = f"{ranks_text(ranks)} hand its steps on inside {roster.host_of(ranks[0])}"
        yield Evidence(f"{where}, which no log shows: it is one of their GPUs, or an NVLink between them")


def _clears(seen: Seen, logs: ChunkLogs, open_flows: OpenFlows) -> str | None:
    if not open_flows or not seen.all_in(logs):
        return None
    return f"in {evidence_text.counted(len(open_flows), 'open flow')} no GPU holds chunks back on its own"


RULE = Rule(
    code="FX144",
    name="gpu-not-ready",
    seed="Mycroft section 5.3, Table 4 (GPU not ready)",
    needs=(Need(ChunkLogs, "chunks", "only NCCL's profiler interface shows the state of chunks"),),
    concludes="A rank whose GPU does not produce or consume chunks although nothing else holds it up.",
    evaluate=_evaluate,
    clears=_clears,
)
