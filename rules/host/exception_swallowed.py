"""A rank raised, caught it, and idles while its peers wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from forensics.model import Cause, Finding
from forensics.rules.interface import Need, Rule, Thresholds
from forensics.rules.reductions.job import Job, LogEvent
from forensics.rules.reductions.stalls import Stall, is_leaving, stall_finding, stalls


def _evaluate(job: Job, _: Thresholds) -> Iterator[Finding]:
    for stall in stalls(job):
        error = own_exception(job, stall)
        if error is not None and not is_leaving(stall):
            step = f"rank {stall.rank} raised and went on: {error.text}"
            found = stall_finding(job, stall, RULE.code, Cause.PYTHON_EXCEPTION, (step,), sources=(error,))
            yield replace(found, strength=found.strength + 0.05)


def own_exception(job: Job, stall: Stall) -> LogEvent | None:
    """The rank's last exception, when no rank that merely waits has one: what everybody logs explains nobody."""
    raised = {rank for rank, events in job.logs.items() if any(event.kind == "exception" for event in events)}
    lost = any(event.kind == "peer_closed" for event in job.logs.get(stall.rank, ()))
    if stall.rank not in raised or lost or raised & set(job.waiters(stall.rank)):
        return None
    return [event for event in job.logs[stall.rank] if event.kind == "exception"][-1]


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
)
