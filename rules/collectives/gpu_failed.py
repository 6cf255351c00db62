"""The driver reports an error of a rank's GPU, or that it is lost, and ranks wait for that rank or together with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

from forensics.model import (
    Belief,
    Cause,
    Component,
    Confidence,
    Evidence,
    Finding,
    Granularity,
    Members,
    Resource,
    StageName,
    StageRef,
)
from forensics.rules.interface import Need, Rule
from forensics.rules.reductions.hardware.gpu_errors import GpuError, GpuErrors, GpuReports, KernelLogs
from forensics.rules.reductions.logs.failures import Failures
from forensics.rules.reductions.logs.log_evidence import Logged
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.samples import StacksByRank, activity_of
from forensics.rules.reductions.text.evidence_text import EvidenceText, counted, left_nothing
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.reductions.waits.graph import WaitGraph

_SHOWN = 4
# Two ranks that lose their peer: one may have lost the other.
_LEAST_LOST = 2


def _evaluate(
    roster: Roster, graph: WaitGraph, stacks: StacksByRank, errors: GpuErrors, logged: Logged, text: EvidenceText
) -> Iterator[Finding]:
    """Of errors that came together nothing shows which was first: one of their GPUs is to blame.

    A rank that waits for another one has an error that explains nothing, unless nothing was seen of that one.
    """
    unseen = dict(_beside_unseen(roster, graph, errors))
    first = errors.first(
        {rank for root in (*graph.roots, *graph.reported_roots) for rank in root.ranks}
        | {rank for rank in errors.by_rank if roster.rank(rank).dead}
        | {rank for rank, others in unseen.items() if not _may_be_echo(rank, others, errors, roster)}
        | {rank for rank, error in errors.by_rank.items() if error.is_lost and _left_out(rank, roster, graph)}
        | {rank for rank, error in errors.by_rank.items() if error.of_device and _was_lost(rank, roster, logged.failures)}
    )
    # What a program can cause, and most ranks have, it caused.
    if 2 * len(first) > len(roster.ranks) > 2 and not any(errors.by_rank[rank].of_device for rank in first):
        return
    if len(first) > 1:
        yield _finding(errors, first, ())
    for rank in first if len(first) == 1 else ():
        stage = _stage(graph, stacks, text, rank)
        found = _finding(errors, first, (*text.waiters(rank), *text.stack(rank), *text.process(rank)))
        found = found if errors.by_rank[rank].of_device else _beside(found, unseen.get(rank, ()))
        yield replace(found, stage=stage, since=roster.since(rank, errors.by_rank[rank].time_ns))


def _beside(finding: Finding, unseen: tuple[int, ...]) -> Finding:
    """A suspicion, where a rank of which nothing is seen may be the one that all wait for."""
    if not unseen:
        return finding
    return replace(finding, confidence=Confidence.SUSPECT, evidence=(*finding.evidence, left_nothing(unseen)))


def _beside_unseen(roster: Roster, graph: WaitGraph, errors: GpuErrors) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Ranks that wait for such only as left nothing to see, which may be inside the same operations and be held up as well.

    A device that is lost does not come back, whoever else is late, also where those that its rank waits for wait for them
    alone; what a peer can cause may be an echo.
    """
    unseen = {rank for rank, facts in roster.ranks.items() if facts.unseen}
    for rank in errors.by_rank.keys() & graph.waits_for.keys():
        whom = {*graph.waits_for[rank]}
        if errors.by_rank[rank].of_device:
            whom = {other for other in graph.awaited(rank) if other not in graph.waits_for}
        if whom and unseen.issuperset(whom):
            yield rank, tuple(sorted(whom))


def _may_be_echo(rank: int, others: tuple[int, ...], errors: GpuErrors, roster: Roster) -> bool:
    """Whether one of the others may have caused the error: a GPU of the same host, or of one that is not known."""
    host = roster.host_of(rank)
    return errors.by_rank[rank].of_peer and (host is None or bool({host, None} & {roster.host_of(other) for other in others}))


def _left_out(rank: int, roster: Roster, graph: WaitGraph) -> bool:
    """Whether others wait, in groups whose other members nothing tells, and nothing shows that this rank does."""
    return bool(graph.waits) and rank not in graph.waits_for and roster.rank(rank).unseen


def _was_lost(rank: int, roster: Roster, failures: Failures) -> bool:
    """Whether all other ranks, and this one not, ended by the loss of a peer, and none by an error of its own."""
    others = roster.ranks.keys() - {rank}
    return not failures.own and len(others) >= _LEAST_LOST and failures.following == others


def _stage(graph: WaitGraph, stacks: StacksByRank, text: EvidenceText, rank: int) -> StageRef:
    """That of the first operation which it entered and nobody leaves; else that of its host, which may be ahead of the GPU.

    Of calls that only counters tell its peers show the stage, and which of them came first.
    """
    entered = [wait for wait in graph.waits if wait.communicator and rank in wait.waiting]
    own = [(call.order, wait) for wait in entered if (call := wait.waiting[rank])]
    if own:
        return text.joined_stage(min(own, key=lambda each: each[0])[1], (rank,), Component.COMPUTE)
    if entered:
        first = min(entered, key=lambda wait: (wait.since_ns or inf, wait.communicator))
        return text.joined_stage(first, first.waiting, Component.COMPUTE)
    activity = activity_of(stacks, rank)
    return text.stage_ref(rank, activity.stage if activity else StageName.UNKNOWN, activity, Component.COMPUTE)


def _finding(errors: GpuErrors, ranks: tuple[int, ...], seen: tuple[Evidence, ...]) -> Finding:
    alone, error = len(ranks) == 1, errors.by_rank[ranks[0]]
    return Finding(
        ranks=ranks,
        cause=Cause.GPU_FAULT,
        stage=StageRef(component=Component.COMPUTE),
        belief=Belief.DIRECT_RECORD,
        confidence=Confidence.LIKELY if alone and error.time_ns is not None else Confidence.SUSPECT,
        evidence=(*(errors.statement(rank) for rank in ranks[:_SHOWN]), *seen, *_doubts(error)),
        granularity=Granularity.GPU if alone else Granularity.GROUP,
        members=Members.EACH if alone else Members.ONE_OF,
        resource=Resource(gpu=error.address) if alone else None,
        next_steps=_next_steps(error, ranks[0]),
    )


def _doubts(error: GpuError) -> Iterator[Evidence]:
    if error.time_ns is None and not error.of_rank:
        yield Evidence("nothing dates that error against the job: it may be of an earlier one", None, supports=False)
    if not error.of_device:
        peer = ", or a peer," if error.of_peer else ""
        yield Evidence(f"a kernel of the program itself{peer} can cause it as well", None, supports=False)


def _next_steps(error: GpuError, rank: int) -> tuple[str, ...]:
    if error.of_device:
        return (f"take the GPU of rank {rank} out of service, then reset and test it: {error.meaning}",)
    return (
        f"run the last kernels of rank {rank} with CUDA_LAUNCH_BLOCKING=1: {error.meaning} names no culprit by itself",
        f"if it comes back on the same GPU ({error.address}) with another program, the GPU is at fault",
    )


def _clears(seen: Seen, roster: Roster, read: KernelLogs, errors: GpuErrors) -> str | None:
    hosts = set(roster.hosts.values())
    if errors.by_rank or errors.unplaced or not seen.is_whole or None in hosts or not hosts <= read:
        return None
    return f"the driver wrote of no error that ends the work of a GPU in the kernel logs of {counted(len(hosts), 'host')}"


RULE = Rule(
    code="FX147",
    name="gpu-failed",
    seed="Pulse table 3 (GPU execution error)",
    needs=(Need(GpuReports, "kernel_log", "the driver writes errors of GPUs into the kernel log"),),
    concludes="A rank whose GPU the driver reports as failed, and that others wait for or with.",
    evaluate=_evaluate,
    clears=_clears,
)
