"""NCCL RAS shows a rank that launched fewer collectives than its peers, or a process that does not answer."""

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
    Mechanism,
    Members,
    Role,
    StageName,
    StageRef,
)
from forensics.rules.interface import Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.job import Job
from forensics.rules.reductions.progress.liveness import Motion
from forensics.rules.reductions.ras.lags import Lag, Lags, lags
from forensics.rules.reductions.ras.report import Process, Ras, RasGroup, RasMember
from forensics.rules.reductions.text import evidence_text as statements
from forensics.rules.reductions.text.evidence_text import EvidenceText

_SHOWN = 3
_ERRORS = {1: "unhandled CUDA error", 2: "system error", 3: "internal error", 6: "remote process error"}


def _evaluate(job: Job, thresholds: Thresholds) -> Iterator[Finding]:
    if job.ras is None:
        return
    found = lags(job.ras)
    yield from _late(job, job.ras, found, thresholds)
    yield from _lost(job, job.ras)
    if not found.roots and len(found.mixed) == 1:
        yield from _elsewhere(job, job.ras, *found.mixed[0])


def _late(job: Job, ras: Ras, found: Lags, thresholds: Thresholds) -> Iterator[Finding]:
    """Ranks that are behind and wait for nobody; nothing when they are the larger part of those they are compared with."""
    roots = {process: behind for process, behind in found.roots.items() if not _communicates(job, ras, process)}
    compared = {member.process for behind in roots.values() for lag in behind for member in lag.group.members}
    sizes = [lag.group.size or len(lag.group.members) for behind in roots.values() for lag in behind]
    if not roots or len(roots) * 2 > max(len(compared), *sizes):
        return
    doubts = tuple(_doubts(job, ras, found, roots, thresholds))
    for process, behind in roots.items():
        if process in ras.ranks:
            yield _late_finding(job, ras, process, behind, doubts, alone=len(roots) == 1)


def _communicates(job: Job, ras: Ras, process: Process) -> bool:
    """Whether the rank's own stack is inside communication: it waits in a call that RAS does not count."""
    stacks = job.stacks.get(ras.ranks.get(process, -1))
    return stacks is not None and (stacks.communicating or stacks.below_autograd or stacks.in_store)


def _doubts(job: Job, ras: Ras, found: Lags, roots: dict[Process, tuple[Lag, ...]], thresholds: Thresholds) -> Iterator[str]:
    """Why this is a suspicion only, in words."""
    yield from _unsettled(job, ras, thresholds)
    if len(roots) > 1:
        yield f"{len(roots)} ranks are behind, and RAS does not tell which of them the others wait for"
    if ras.lost:
        yield f"{statements.counted(len(ras.lost), 'process')} did not answer RAS, and may be what all wait for"
    if found.ambiguous or not ras.complete:
        yield "the report does not name all ranks and communicators: the rank may wait where it is not named"
    if found.mixed:
        yield "in another communicator ranks launched different kinds of collectives"
    if any(group.unused and any(m.process in roots for m in group.members) for group in ras.groups):
        yield "the rank is in a communicator without counted calls: RAS counts neither point-to-point calls nor captured graphs"


def _unsettled(job: Job, ras: Ras, thresholds: Thresholds) -> Iterator[str]:
    """Why the looks do not show that anything stands still."""
    stalled = job.liveness.motion is Motion.STALLED
    if ras.looks < 2:
        yield "RAS was asked once: in a moving job ranks differ all the time"
    elif ras.gap_s is None:
        yield "nothing tells how much time lies between the looks"
    elif ras.gap_s < (1 if stalled else thresholds["settled_gap_s"]):
        yield f"the looks are {ras.gap_s:.0f} s apart, and nothing else shows a standstill: a long step looks the same"


def _late_finding(
    job: Job, ras: Ras, process: Process, behind: tuple[Lag, ...], doubts: tuple[str, ...], alone: bool
) -> Finding:
    rank = ras.ranks[process]
    confirms = "recorder" in job.available or bool(job.graph.free_roots)
    return Finding(
        rule=RULE.code,
        ranks=(rank,),
        role=Role.CONFIRMATION if confirms else Role.ROOT,
        cause=Cause.HOST_STALL,
        stage=StageRef(
            name=_stage(job, rank),
            component=Component.HOST,
            operation=behind[0].kind,
            communicator=behind[0].group.communicator,
        ),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.SUSPECT if doubts else Confidence.LIKELY,
        strength=0.3 if alone else 0.2,
        evidence=(
            *_behind(ras, rank, behind),
            *_error(rank, behind),
            *job.supply.get(EvidenceText).stack(rank),
            *_against(doubts),
        ),
        mechanism=Mechanism("not_started", "local"),
        next_steps=(f"take a stack and a Flight Recorder dump of {_who(ras, process)}: RAS shows that it is behind, not why",),
    )


def _stage(job: Job, rank: int) -> StageName:
    found = job.activity(rank)
    return found.stage if found else StageName.UNKNOWN


def _behind(ras: Ras, rank: int, behind: tuple[Lag, ...]) -> Iterator[Evidence]:
    how = "in both looks" if ras.looks == 2 else f"in all {ras.looks} looks" if ras.looks > 2 else "in the only look"
    for lag in behind[:_SHOWN]:
        yield Evidence(
            f"rank {rank} launched up to {lag.kind} {lag.launched} of communicator {lag.group.communicator} {how} at RAS, "
            f"its peers up to {lag.usual}; it is ahead of nobody in another collective",
            lag.member.source,
        )
    if len(behind) > _SHOWN:
        yield Evidence(
            f"it is behind in {statements.counted(len(behind) - _SHOWN, 'more place')}", behind[_SHOWN].member.source
        )
    if ras.method == "world":
        yield Evidence("global ranks are those of the communicator of all GPUs", behind[0].member.source)


def _error(rank: int, behind: tuple[Lag, ...]) -> Iterator[Evidence]:
    member = next((lag.member for lag in behind if lag.member.async_error not in (0, 7)), None)
    if member:
        name = _ERRORS.get(member.async_error, "error")
        yield Evidence(f"RAS reports asynchronous error {member.async_error} ({name}) of rank {rank}", member.source)


def _against(doubts: tuple[str, ...]) -> Iterator[Evidence]:
    for doubt in doubts:
        yield Evidence(doubt, None, supports=False)


def _who(ras: Ras, process: Process) -> str:
    address, pid, _ = process
    return f"rank {ras.ranks[process]} (pid {pid} at {address})"


def _lost(job: Job, ras: Ras) -> Iterator[Finding]:
    """Processes that did not answer: dead, stopped, or cut off; a suspicion at most, for RAS sees its own network only."""
    named = [process for process in sorted(ras.lost) if process in ras.ranks]
    largest = max((group.size or 0 for group in ras.groups), default=0)
    if 2 * len(named) > max(len(job.roster.ranks), job.roster.world_size or 0, largest):
        return
    for process in named:
        yield _lost_finding(job, ras, process)


def _lost_finding(job: Job, ras: Ras, process: Process) -> Finding:
    rank = ras.ranks[process]
    word, looks, source = ras.lost[process]
    facts = job.rank(rank)
    seen = (
        "RAS considers {} dead: unreachable over its network for a minute" if word == "dead" else "{} did not answer RAS"
    ).format(_who(ras, process))
    alive = facts.state == "alive" and not facts.stopped
    against = Evidence(f"the process of rank {rank} was found alive on its host", facts.state_source, supports=False)
    return Finding(
        rule=RULE.code,
        ranks=(rank,),
        role=Role.CONFIRMATION if job.graph.free_roots and not (facts.dead or facts.stopped) else Role.ROOT,
        cause=_lost_cause(word, dead=facts.dead, stopped=facts.stopped, alive=alive),
        stage=StageRef(component=Component.HOST),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.SUSPECT,
        strength=0.25 if word == "dead" else 0.15,
        evidence=(
            Evidence(f"{seen} ({looks} of {statements.counted(ras.looks, 'look')})", source),
            *([against] if alive else ()),
        ),
        next_steps=(f"look for the process of {_who(ras, process)}: exit code, kernel log, network of its host",),
    )


def _lost_cause(word: str, *, dead: bool, stopped: bool, alive: bool) -> Cause:
    """The cause another witness tells; RAS alone tells death only, and not against a process that was seen alive."""
    if dead or stopped:
        return Cause.PROCESS_DEAD if dead else Cause.PROCESS_STOPPED
    return Cause.PROCESS_DEAD if word == "dead" and not alive else Cause.UNKNOWN


def _elsewhere(job: Job, ras: Ras, group: RasGroup, member: RasMember) -> Iterator[Finding]:
    """One rank launched another kind than the others: they are in different operations."""
    process = member.process
    if process is None or process not in ras.ranks or member.moved or "recorder" in job.available:
        return
    rank = ras.ranks[process]
    own = ", ".join(
        f"up to {kind} {count} (its peers {group.usual[kind]})"
        for kind, count in member.counts.items()
        if count != group.usual[kind]
    )
    yield Finding(
        rule=RULE.code,
        ranks=(rank,),
        role=Role.ROOT,
        cause=Cause.COLLECTIVE_MISMATCH,
        stage=StageRef(component=Component.COMMUNICATION, communicator=group.communicator),
        belief=Belief.GROUP_SYMPTOM,
        confidence=Confidence.SUSPECT,
        strength=0.3,
        evidence=(Evidence(f"rank {rank} launched {own} of communicator {group.communicator}", member.source),),
        granularity=Granularity.RANK,
        members=Members.EACH,
        next_steps=(
            f"compare the code that {_who(ras, process)} ran with its peers'; a Flight Recorder dump shows both calls",
        ),
    )


def _clears(_: Job) -> str | None:
    """Equal counts rule nothing out: RAS counts what was launched, not what completed."""
    return None


RULE = Rule(
    code="FX153",
    name="behind-in-ras",
    seed="Flight Recorder practice",
    needs=(Need(Ras, "ras", "only a report of NCCL RAS has these counts"),),
    thresholds=(
        Threshold(
            "settled_gap_s",
            60.0,
            "RAS has no time of its own: ranks that differ for less than the longest usual step are no sign of a hang",
        ),
    ),
    concludes="The rank whose count of collectives stays below its peers' and that waits in no other one; a lost process.",
    confusions=(
        "a moving job: ranks differ at any moment",
        "point-to-point calls and captured graphs, which RAS does not count",
        "a process that cannot be reached over the RAS network, and trains",
    ),
    evaluate=_evaluate,
    clears=_clears,
)
