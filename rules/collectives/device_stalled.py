"""A rank issued a collective like its peers, they began or finished it on their devices, and its own device did not."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import (
    Belief,
    Cause,
    Component,
    Confidence,
    Evidence,
    Finding,
    Granularity,
)
from forensics.rules.interface import Need, Rule
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.hardware.gpu_errors import GpuErrors
from forensics.rules.reductions.mismatch.disagreements import BlockingMismatches
from forensics.rules.reductions.network.chunk_flows import OpenFlows
from forensics.rules.reductions.ranks.roster import RecordedRanks
from forensics.rules.reductions.text import evidence_text
from forensics.rules.reductions.text.evidence_text import EvidenceText
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.reductions.waits.completions import StartRecords, device_stall, not_begun
from forensics.rules.reductions.waits.graph import Root, Wait, WaitGraph


def _evaluate(
    graph: WaitGraph,
    groups: Communicators,
    blocking: BlockingMismatches,
    open_flows: OpenFlows,
    starts: StartRecords,
    text: EvidenceText,
    errors: GpuErrors,
) -> Iterator[Finding]:
    mismatched = {mismatch.communicator for mismatch in blocking}
    # Where chunks can be seen, they tell a device from the network behind it.
    seen = {(flow.communicator, flow.number) for flow in open_flows}
    for root in graph.roots:
        wait = root.waits[0]
        if (wait.communicator, wait.sequence) in seen or wait.communicator in mismatched:
            continue
        finished, behind = device_stall(groups, root), not_begun(root, graph, starts)
        if finished:
            yield from (errors.refined(_finding(text, root, rank, _completion(wait, rank, finished))) for rank in root.ranks)
        elif behind:
            yield from (errors.refined(_finding(text, root, rank, _start(wait, rank, behind))) for rank in behind)


def _finding(text: EvidenceText, root: Root, rank: int, evidence: Evidence) -> Finding:
    wait = root.waits[0]
    return Finding(
        ranks=(rank,),
        cause=Cause.COMPUTE_HANG,
        stage=text.joined_stage(wait, (rank,), Component.COMPUTE),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY,
        evidence=(evidence, *text.stack(rank), *text.process(rank)),
        granularity=Granularity.GPU,
        since=text.since((wait,)),
        next_steps=(
            f"check the GPU of rank {rank}: Xid in the kernel log, nvidia-smi, clocks and power against its peers",
            "a kernel queued before it on the same stream leaves the same evidence: check what was launched first",
        ),
    )


def _completion(wait: Wait, rank: int, finished: tuple[int, ...]) -> Evidence:
    operation = wait.waiting[rank]
    who = evidence_text.ranks_text(finished)
    return Evidence(
        f"rank {rank} entered {evidence_text.wait_text(wait)} like its peers; {who} finished it, its own completion never came",
        operation.source if operation else None,
    )


def _start(wait: Wait, rank: int, behind: tuple[int, ...]) -> Evidence:
    operation = wait.waiting[rank]
    others = tuple(other for other in wait.waiting if other not in behind)
    return Evidence(
        f"all members issued {evidence_text.wait_text(wait)}; the devices of {evidence_text.ranks_text(others)} are inside it, "
        f"that of rank {rank} has not begun it: what was launched before it there is not done",
        operation.source if operation else None,
    )


def _clears(seen: Seen, groups: Communicators) -> str | None:
    used = [group for group in groups if group.positions and group.backend not in ("gloo", "unknown")]
    where = evidence_text.counted(len(used), "communicator")
    known = bool(used) and seen.ends_of_all
    return f"no device is behind its peers in an operation that they finished, in {where}" if known else None


RULE = Rule(
    code="FX141",
    name="device-stalled",
    seed="Mycroft section 8, case three (a)",
    needs=(Need(RecordedRanks, "recorder", "completions are in the recorder only"),),
    concludes="A rank whose device does not come out of an operation that its peers finished, or into one that they are in.",
    evaluate=_evaluate,
    clears=_clears,
)
