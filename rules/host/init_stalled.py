"""A rank never arrived at a rendezvous or group creation that its peers wait in."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Cause, Finding, StageName
from forensics.rules.interface import Need, Rule, Thresholds
from forensics.rules.reductions import statements
from forensics.rules.reductions.job import Job
from forensics.rules.reductions.stalls import stall_finding, stalls


def _evaluate(job: Job, _: Thresholds) -> Iterator[Finding]:
    for stall in stalls(job):
        if stall.stage is StageName.INIT:
            yield stall_finding(
                job,
                stall,
                RULE.code,
                Cause.INIT_STALL,
                (f"see what rank {stall.rank} does before it joins the group; check its MASTER_ADDR, WORLD_SIZE and RANK",),
            )


def _clears(job: Job) -> str | None:
    entered = [group.label for group in job.groups if any(p.done for p in group.positions.values())]
    return (
        f"collectives completed in {statements.counted(len(entered), 'communicator')}, so the job got past its start"
        if entered
        else None
    )


RULE = Rule(
    code="FX113",
    name="init-stalled",
    seed="Flight Recorder practice",
    needs=(Need("stacks", "before the first collective there is nothing but stacks"),),
    thresholds=(),
    concludes="A rank that its peers wait for in a rendezvous, a store barrier or group creation.",
    confusions=("a node that was never started: then the rank has no process",),
    evaluate=_evaluate,
    clears=_clears,
)
