"""A rank raised, caught it, and idles while its peers wait for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from forensics.model import Cause, Confidence, Evidence, Finding
from forensics.rules.interface import Maturity, Need, Rule, Thresholds
from forensics.rules.reductions.host.stalls import is_leaving, stall_finding, stalls
from forensics.rules.reductions.job import Job, LogEvent
from forensics.rules.reductions.mismatch.call_mismatches import blocking, dispute_finding
from forensics.rules.reductions.mismatch.disagreements import Disagreement


def _evaluate(job: Job, _: Thresholds) -> Iterator[Finding]:
    for stall in stalls(job):
        error = _own_exception(job, stall.rank, job.waiters(stall.rank))
        if error is not None and not is_leaving(stall):
            found = stall_finding(job, stall, RULE.code, Cause.PYTHON_EXCEPTION, _steps(stall.rank, error), sources=(error,))
            yield replace(found, strength=found.strength + 0.05)
    for dispute in blocking(job):
        for rank in dispute.odd:
            error = _own_exception(job, rank, dispute.majority)
            if error is not None:
                yield _elsewhere(job, dispute, rank, error)


def _elsewhere(job: Job, dispute: Disagreement, rank: int, error: LogEvent) -> Finding:
    """Build the finding on a rank that raised and is now in another call than its peers (a `finally`, a handler)."""
    step = _steps(rank, error)[0]
    found = dispute_finding(job, dispute, RULE.code, Cause.PYTHON_EXCEPTION, Confidence.LIKELY, step)
    raised = Evidence(f"log of rank {rank}: {error.text}", error.source)
    return replace(found, ranks=(rank,), evidence=(raised, *found.evidence), strength=found.strength + 0.05)


def _steps(rank: int, error: LogEvent) -> tuple[str, ...]:
    return (f"rank {rank} raised and went on: {error.text}",)


def _own_exception(job: Job, rank: int, others: Iterable[int]) -> LogEvent | None:
    """The rank's last exception, when none of `others` has one: what everybody logs explains nobody."""
    raised = {rank for rank, events in job.logs.items() if any(event.kind == "exception" for event in events)}
    lost = any(event.kind == "peer_closed" for event in job.logs.get(rank, ()))
    if rank not in raised or lost or raised & set(others):
        return None
    return [event for event in job.logs[rank] if event.kind == "exception"][-1]


def _clears(job: Job) -> str | None:
    raised = any(event.kind == "exception" for events in job.logs.values() for event in events)
    return None if raised or "logs" not in job.available else "no log of a rank shows an exception"


RULE = Rule(
    code="FX115",
    name="exception-swallowed",
    seed="Flight Recorder practice",
    needs=(Need("logs", "the exception is in the log only"), Need("stacks", "they show that the rank idles")),
    thresholds=(),
    concludes="The rank that others wait for, alive, whose log alone shows an exception.",
    confusions=("an exception that is normal for this job: only a rank that nobody else shares it with is named",),
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
