"""A rank is leaving the job (teardown, interpreter exit) while its peers still wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from forensics.model import Cause, Finding, Role, WaitKind
from forensics.rules.interface import Maturity, Need, Rule, Thresholds
from forensics.rules.reductions.host.stalls import Stall, is_leaving, stall_finding, stalls
from forensics.rules.reductions.job import Job, LogEvent
from forensics.rules.reductions.text import evidence_text as statements


def _evaluate(job: Job, _: Thresholds) -> Iterator[Finding]:
    for stall in stalls(job):
        if is_leaving(stall):
            yield _finding(job, stall)


def _finding(job: Job, stall: Stall) -> Finding:
    error, rank = _exception(job, stall), stall.rank
    if error is None:
        step = f"find why rank {rank} finished before its peers (uneven inputs, a swallowed exception)"
        return stall_finding(job, stall, RULE.code, Cause.EXTRA_OR_MISSING_COLLECTIVE, (step,))
    step = f"rank {rank} raised: {error.text}"
    found = stall_finding(job, stall, RULE.code, Cause.PYTHON_EXCEPTION, (step,), sources=(error,))
    return replace(found, role=Role.VICTIM) if _lost_a_peer(job, rank) else found


def _lost_a_peer(job: Job, rank: int) -> bool:
    """Whether the rank leaves because a connection to another one broke: then it is a victim."""
    return any(event.kind == "peer_closed" for event in job.logs.get(rank, ()))


def _exception(job: Job, stall: Stall) -> LogEvent | None:
    found = [event for event in job.logs.get(stall.rank, ()) if event.kind == "exception"]
    return found[-1] if found else None


def _clears(job: Job) -> str | None:
    seen = [found.latest for found in job.stacks.values() if found.latest]
    leaving = [activity for activity in seen if activity.wait is WaitKind.EXITING]
    return f"none of {statements.counted(len(seen), 'rank')} with stacks is in teardown" if seen and not leaving else None


RULE = Rule(
    code="FX114",
    name="left-early",
    seed="Flight Recorder practice",
    needs=(Need("stacks", "only stacks show teardown"),),
    thresholds=(),
    concludes="A rank in teardown that others wait for: it raised (its log says what) or it ran out of work before them.",
    confusions=("the normal end of the job: then nobody waits in a collective",),
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
