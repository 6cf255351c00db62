"""A rank never arrived at a rendezvous or group creation that its peers wait in."""

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
    StageName,
    StageRef,
    WaitKind,
)
from forensics.rules.interface import Maturity, Need, Rule
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.host.stalls import StallFindings, Stalls
from forensics.rules.reductions.stacks.samples import StacksByRank
from forensics.rules.reductions.text import evidence_text
from forensics.rules.reductions.text.evidence_text import EvidenceText
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.reductions.waits.graph import Root, RootKind, WaitGraph


def _evaluate(
    stacks: StacksByRank, graph: WaitGraph, text: EvidenceText, stalls: Stalls, stalled: StallFindings
) -> Iterator[Finding]:
    for stall in stalls:
        if stall.stage is StageName.INIT and stall.explained:
            step = f"see what rank {stall.rank} does before it joins the group; check its MASTER_ADDR, WORLD_SIZE and RANK"
            yield stalled.finding(stall, Cause.INIT_STALL, (step,))
    for root in graph.roots:
        if root.kind is RootKind.CYCLE:
            yield from _passed_by(stacks, text, root)


def _passed_by(stacks: StacksByRank, text: EvidenceText, root: Root) -> Iterator[Finding]:
    """Ranks that are inside a collective while the others of the circle still wait for them in a store."""
    for wait in root.waits:
        in_store = tuple(rank for rank in root.ranks if rank in wait.waiting and rank in stacks and stacks[rank].in_store)
        past = tuple(rank for rank in root.ranks if rank not in in_store)
        if wait.communicator or not in_store or not past or len(past) >= len(in_store):
            continue
        who = evidence_text.ranks_text(in_store)
        yield Finding(
            ranks=past,
            cause=Cause.INIT_STALL,
            stage=StageRef(name=StageName.INIT, component=Component.COMMUNICATION),
            belief=Belief.MISMATCH,
            confidence=Confidence.LIKELY,
            evidence=(
                Evidence(f"{who} wait in a rendezvous or group creation", stacks[in_store[0]].main[-1].source),
                *(line for rank in past[:4] for line in text.stack(rank)),
            ),
            granularity=Granularity.of_ranks(past),
            next_steps=(f"see why {evidence_text.ranks_text(past)} did not create the group that {who} create",),
        )


def _clears(seen: Seen, groups: Communicators, stacks: StacksByRank) -> str | None:
    """A later group may stall in its making after others have worked: only stacks of all ranks show that none does."""
    entered = [group.label for group in groups if any(p.done for p in group.positions.values())]
    in_store = [found for found in stacks.values() if found.latest and found.latest.wait is WaitKind.STORE]
    if not entered or in_store or not seen.all_in(seen.stacks):
        return None
    where = evidence_text.counted(len(entered), "communicator")
    return f"collectives completed in {where} and no rank waits in a store, so the job got past its start"


RULE = Rule(
    code="FX113",
    name="init-stalled",
    seed="Flight Recorder practice",
    needs=(Need(StacksByRank, "stacks", "before the first collective there is nothing but stacks"),),
    concludes="A rank that its peers wait for in a rendezvous, a store barrier or group creation.",
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
