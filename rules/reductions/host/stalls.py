"""Ranks that others wait for, alive and busy with something else: what they do, from their own and their children's stacks."""

from __future__ import annotations

from dataclasses import dataclass

from forensics.model import Belief, Cause, Confidence, Evidence, Finding, Role, StageName, WaitKind
from forensics.rules.reductions.job import Job, LogEvent
from forensics.rules.reductions.stacks.activity import Activity
from forensics.rules.reductions.stacks.samples import Sample, Stacks
from forensics.rules.reductions.text import evidence_text as statements

_POLLING = frozenset({WaitKind.CHILD, WaitKind.DATA, WaitKind.LOCK, WaitKind.IO, WaitKind.UNKNOWN, WaitKind.SLEEP})
# Stages of a child process that explain a parent that polls it.
_CHILD_STAGES = (StageName.CHECKPOINT, StageName.DATA)


@dataclass(frozen=True, slots=True)
class Stall:
    """One free root: its rank, the stage it was in, the activity that told it, and the child process that explains it."""

    rank: int
    stage: StageName
    activity: Activity | None
    child: Sample | None


def stalls(job: Job) -> tuple[Stall, ...]:
    """Find the free roots whose process lives and runs, in rank order."""
    ranks = [root.ranks[0] for root in job.graph.free_roots]
    ended = {rank for rank, log in job.shim.items() if log.ended} if job.calls_from_shim else set()
    gone = [r for r in ranks if job.rank(r).dead or job.rank(r).stopped or job.rank(r).heartbeat_gap_ns or r in ended]
    alive = [r for r in ranks if r not in gone and not job.rank(r).unseen]
    return tuple(_stall(job, rank) for rank in alive)


def _stall(job: Job, rank: int) -> Stall:
    found = job.stacks.get(rank)
    latest = found.latest if found else None
    if found is None or latest is None:
        return Stall(rank, StageName.UNKNOWN, None, None)
    stage = StageName.INIT if _peers_initialise(job, rank) else _steady_stage(found)
    blocked = _explaining_child(found, stage) if latest.wait in _POLLING else None
    if stage is StageName.UNKNOWN and blocked:
        stage = blocked.activity.stage
    return Stall(rank, stage, latest, blocked)


def _peers_initialise(job: Job, rank: int) -> bool:
    """Whether everyone who waits for this rank waits in a rendezvous or store: whatever it does, it holds up the start."""
    activities = [job.activity(waiter) for waiter in job.waiters(rank)]
    return bool(activities) and all(found is not None and found.wait is WaitKind.STORE for found in activities)


def _steady_stage(found: Stacks) -> StageName:
    """The stage of the newest sample, unless the samples disagree: then the one most of them show."""
    seen = [sample.activity.stage for sample in found.main]
    newest = seen[-1]
    return max(dict.fromkeys(reversed(seen)), key=lambda stage: (seen.count(stage), stage is newest))


def _explaining_child(found: Stacks, stage: StageName) -> Sample | None:
    children = found.latest_children()
    wanted = (stage,) if stage in _CHILD_STAGES else _CHILD_STAGES if stage is StageName.UNKNOWN else ()
    busy = [child for child in children if child.activity.stage in wanted]
    # A worker that waits for its next index is idle; the one inside the job's own code is the one that is stuck.
    return next((child for child in busy if child.activity.application is not None and not _idle(child)), None)


def _idle(child: Sample) -> bool:
    return child.activity.wait is WaitKind.LOCK and child.activity.python_path[0].origin == "stdlib"


def stall_evidence(job: Job, stall: Stall) -> tuple[Evidence, ...]:
    """All evidence on a stalled root, the most telling first: its child's stack, its own, who waits, its process."""
    explained = (statements.child(stall.child, stall.rank),) if stall.child else ()
    return (
        *explained,
        *statements.stack(job, stall.rank),
        *statements.awaited(job, stall.rank),
        *statements.process(job, stall.rank),
    )


def stall_confidence(job: Job, stall: Stall) -> Confidence:
    """Confirmed when recorder, repeated stacks and the kernel agree; likely when two kinds do,
    or when the recorder shows that at least half of the ranks end up waiting for it; else suspect."""
    facts = job.rank(stall.rank)
    waits = job.graph.waiting_for(stall.rank)
    recorded = any(stall.rank in wait.absent for wait in waits)
    found = job.stacks.get(stall.rank)
    stayed = found is not None and len(found.main) > 1 and not found.moved
    if recorded and stayed and bool(facts.thread_states):
        return Confidence.CONFIRMED
    if recorded and 2 * len(job.waiters(stall.rank)) >= len(job.roster.ranks):
        return Confidence.LIKELY
    kinds = recorded + (found is not None and bool(found.main)) + bool(facts.thread_states)
    return Confidence.LIKELY if kinds >= 2 else Confidence.SUSPECT


def is_leaving(stall: Stall) -> bool:
    """Whether the rank is in teardown or interpreter exit."""
    return stall.activity is not None and stall.activity.wait is WaitKind.EXITING


def stall_finding(
    job: Job, stall: Stall, rule: str, cause: Cause, next_steps: tuple[str, ...], sources: tuple[LogEvent, ...] = ()
) -> Finding:
    """Build the finding of a rule on a stalled root; `sources` are log lines to add to its evidence."""
    noted = tuple(Evidence(f"log of rank {stall.rank}: {event.text}", event.source) for event in sources)
    confidence = stall_confidence(job, stall)
    return Finding(
        rule=rule,
        ranks=(stall.rank,),
        role=Role.ROOT,
        cause=cause,
        stage=statements.stage_ref(job, stall.rank, stall.stage, stall.activity),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=confidence,
        strength=0.5 + 0.4 * len(job.waiters(stall.rank)) / max(1, len(job.roster.ranks)),
        evidence=(*stall_evidence(job, stall), *noted),
        since=statements.since(job, job.graph.waiting_for(stall.rank)),
        next_steps=next_steps,
    )
