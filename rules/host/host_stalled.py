"""A rank is busy or blocked in host code outside any collective while its peers wait for it."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Cause, Finding, StageName
from forensics.rules.interface import Maturity, Rule, Thresholds
from forensics.rules.reductions.host.background import helped_stalls
from forensics.rules.reductions.host.stalls import Stall, is_leaving, stall_finding
from forensics.rules.reductions.host.work import HostWork, host_work
from forensics.rules.reductions.job import Job

# Stages that have a rule of their own.
_ELSEWHERE = frozenset({StageName.DATA, StageName.CHECKPOINT, StageName.INIT})
_KNOWN_WORK = frozenset({HostWork.LOCK, HostWork.COMPILE, HostWork.COLLECT})


def _evaluate(job: Job, _: Thresholds) -> Iterator[Finding]:
    for stall in (helped.stall for helped in helped_stalls(job)):
        if stall.stage not in _ELSEWHERE and not is_leaving(stall) and host_work(job, stall) not in _KNOWN_WORK:
            yield stall_finding(job, stall, RULE.code, Cause.HOST_STALL, _next_steps(job, stall))


def _next_steps(job: Job, stall: Stall) -> tuple[str, ...]:
    facts = job.rank(stall.rank)
    if stall.activity is None:
        return (f"take stacks of rank {stall.rank}: the recorder shows that it is behind, not what it does",)
    where = stall.activity.application
    place = f" at {where}" if where else ""
    return (
        f"read the code of rank {stall.rank}{place}; pid {facts.pid} can be sampled again"
        if facts.pid
        else f"read the code{place}",
    )


def _clears(job: Job) -> str | None:
    held_up = [helped.stall for helped in helped_stalls(job)]
    special = [s for s in held_up if s.stage in _ELSEWHERE or is_leaving(s) or host_work(job, s) in _KNOWN_WORK]
    if special:
        return "whoever is behind its peers does something that has a rule of its own"
    return "no rank is behind its peers outside a collective" if job.graph.waits else None


RULE = Rule(
    code="FX112",
    name="host-stalled",
    seed="VenusTrace section 4.2",
    needs=(),
    thresholds=(),
    concludes="A live rank that every chain of waits ends in and that has not issued the operation its peers wait in.",
    confusions=("a slow rank of a moving job", "a point-to-point wait that the recorder does not record (gloo)"),
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
