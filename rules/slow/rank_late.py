"""A rank of a moving job comes last to most collectives, and the others wait for it."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import (
    Anomaly,
    Belief,
    Cause,
    Component,
    Confidence,
    Evidence,
    Finding,
    Impact,
    Role,
    StageName,
    StageRef,
)
from forensics.rules.interface import Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.calls.arrivals import Lateness
from forensics.rules.reductions.job import Job
from forensics.rules.reductions.text import evidence_text as statements

_CAUSES = {
    StageName.DATA: Cause.DATALOADER_STALL,
    StageName.CHECKPOINT: Cause.CHECKPOINT_STALL,
    StageName.FORWARD: Cause.COMPUTE_SLOW,
    StageName.BACKWARD: Cause.COMPUTE_SLOW,
    StageName.OPTIMIZER: Cause.COMPUTE_SLOW,
}


def _evaluate(job: Job, thresholds: Thresholds) -> Iterator[Finding]:
    named: set[int] = set()
    for late in job.late:
        if late.rank not in named and _material(late, thresholds):
            named.add(late.rank)
            yield job.hardware.refined(_finding(job, late), (Cause.COMPUTE_SLOW,))


def _material(late: Lateness, thresholds: Thresholds) -> bool:
    regular = late.late >= thresholds["least_share_of_calls"] * late.calls and late.late >= thresholds["least_calls"]
    return regular and late.share >= thresholds["least_share_of_time"]


def _finding(job: Job, late: Lateness) -> Finding:
    stage = _usual_stage(job, late.rank)
    typical = f"{late.typical_ns / 1e6:.0f} ms"
    what = (
        f"rank {late.rank} came last to {late.late} of {late.calls} {late.kind} of {late.communicator}, typically by {typical}"
    )
    return Finding(
        rule=RULE.code,
        ranks=(late.rank,),
        role=Role.ROOT,
        cause=_CAUSES.get(stage, Cause.HOST_STALL if stage is not StageName.UNKNOWN else Cause.UNKNOWN),
        stage=StageRef(name=stage, component=Component.UNKNOWN, operation=late.kind, communicator=late.communicator),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY,
        strength=min(1.0, late.share),
        evidence=(
            Evidence(f"{what}: {100 * late.share:.0f} % of the time others wait for it", late.source),
            *statements.stack(job, late.rank),
        ),
        anomaly=Anomaly.FAIL_SLOW,
        impact=Impact(late.lost_ns, round(late.share, 3), late.late, "arrival"),
        next_steps=(
            f"compare what rank {late.rank} does before this call with its peers: load, clocks, its share of the data",
        ),
    )


def _usual_stage(job: Job, rank: int) -> StageName:
    """The stage its stacks show most often outside communication."""
    found = job.stacks.get(rank)
    seen = [s.activity.stage for s in found.main if not s.activity.communicating] if found else []
    return max(dict.fromkeys(seen), key=seen.count, default=StageName.UNKNOWN)


def _clears(job: Job) -> str | None:
    if not job.liveness.may_move:
        return None
    return "no rank regularly comes late to the collectives of its host" if job.groups else None


RULE = Rule(
    code="FX160",
    name="rank-late",
    seed="StageFrontier and Mycroft section 9 (arrival order)",
    needs=(Need("recorder", "arrival times are in the recorder"),),
    thresholds=(
        Threshold("least_share_of_calls", 0.5, "a rank that is late now and then is jitter or a periodic duty"),
        Threshold("least_calls", 5, "fewer are chance"),
        Threshold("least_share_of_time", 0.2, "below a fifth, overlap and legal skew explain it"),
    ),
    concludes="A rank of a moving job that most calls of one kind wait for, with the time lost to it.",
    confusions=("work that one rank does for all by design", "clocks of different hosts: only ranks of one host are compared"),
    evaluate=_evaluate,
    clears=_clears,
)
