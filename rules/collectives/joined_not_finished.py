"""Everyone entered an operation and nobody, or not everybody, came out of it."""

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
    Members,
    Role,
)
from forensics.rules.interface import Maturity, Rule, Thresholds
from forensics.rules.reductions.job import Job
from forensics.rules.reductions.mismatch.call_mismatches import blocking
from forensics.rules.reductions.progress.liveness import Motion
from forensics.rules.reductions.text import evidence_text as statements
from forensics.rules.reductions.waits.completions import device_stall
from forensics.rules.reductions.waits.graph import Root, RootKind
from forensics.rules.reductions.waits.launch_orders import is_entangled

# Operations with a root: members that name different roots enter all the same.
_ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})


def _evaluate(job: Job, _: Thresholds) -> Iterator[Finding]:
    disputed = {dispute.communicator for dispute in blocking(job)}
    # Members that came to it on different lines disagree on what it is: FX122 names them.
    disputed |= {found.communicator for found in job.divergences if found.innermost}
    for root in job.graph.roots:
        if root.kind not in (RootKind.ALL_JOINED, RootKind.ENTANGLED) or device_stall(job, root) or is_entangled(job, root):
            continue
        if root.waits[0].communicator not in disputed:
            yield _finding(job, root)


def _finding(job: Job, root: Root) -> Finding:
    wait = root.waits[0]
    return Finding(
        rule=RULE.code,
        ranks=root.ranks,
        role=Role.ROOT,
        cause=_cause(job, root),
        stage=statements.joined_stage(job, wait, root.ranks, Component.COMMUNICATION),
        belief=Belief.GROUP_SYMPTOM,
        confidence=Confidence.SUSPECT,
        strength=0.2,
        evidence=tuple(_evidence(job, root)),
        granularity=Granularity.GROUP,
        members=Members.ONE_OF,
        since=statements.since(job, (wait,)),
        next_steps=("look inside the collective: network, devices, proxy threads; the recorder cannot tell its members apart",),
    )


def _cause(job: Job, root: Root) -> Cause:
    """A rooted operation that only some finished fits members that disagree on the root; else the network is what is left."""
    wait = root.waits[0]
    kinds = {operation.kind for operation in wait.waiting.values() if operation}
    group = next((group for group in job.groups if group.label == wait.communicator), None)
    if kinds & _ROOTED:
        return Cause.COLLECTIVE_MISMATCH if group and group.finished(wait.sequence) else Cause.UNKNOWN
    return Cause.NETWORK_DOWN if _nothing_but_the_network(job, root) else Cause.UNKNOWN


def _nothing_but_the_network(job: Job, root: Root) -> bool:
    """Whether every member lives and is inside the same call, made at the same place, of a job that stands still."""
    seen = [job.activity(rank) for rank in root.ranks]
    places = {
        str(activity.application) for activity in seen if activity and (activity.communicating or activity.below_autograd)
    }
    alive = all(job.rank(rank).state == "alive" for rank in root.ranks)
    inside = all(activity and (activity.communicating or activity.below_autograd) for activity in seen)
    recorded = bool(root.waits[0].communicator)
    return recorded and alive and inside and len(places) == 1 and job.liveness.motion is Motion.STALLED


def _evidence(job: Job, root: Root) -> Iterator[Evidence]:
    wait = root.waits[0]
    source = next((op.source for _, op in sorted(wait.waiting.items()) if op), None)
    if not wait.communicator:
        yield Evidence(
            f"{statements.ranks_text(root.ranks)} are inside communication, and no rank is known to be elsewhere", source
        )
    else:
        group = next(g for g in job.groups if g.label == wait.communicator)
        finished = () if wait.peers else group.finished(wait.sequence)
        tail = f"; {statements.ranks_text(finished)} finished it" if finished else "; nobody finished it"
        yield Evidence(
            f"all members entered {statements.wait_text(wait)}: {statements.ranks_text(root.ranks)} wait{tail}", source
        )
    for rank in root.ranks[:4]:
        yield from statements.stack(job, rank)


def _clears(job: Job) -> str | None:
    used = [group for group in job.groups if group.positions]
    return (
        f"no operation of {statements.counted(len(used), 'communicator')} was entered by all members and left unfinished"
        if used
        else None
    )


RULE = Rule(
    code="FX140",
    name="joined-not-finished",
    seed="Mycroft section 6.2 (layering)",
    needs=(),
    thresholds=(),
    concludes="A group whose members cannot be told apart: the fault is below the recorder (network, device, library).",
    confusions=("a moving job between two dumps", "a member that is already gone but left a dump"),
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
