"""A rank raised, caught it, and idles while its peers wait for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from forensics.model import Cause, Confidence, Evidence, Finding
from forensics.rules.interface import Maturity, Need, Rule
from forensics.rules.reductions.host.stalls import StallFindings, Stalls, is_leaving
from forensics.rules.reductions.logs.events import LogEvent, LogEvents, Logs
from forensics.rules.reductions.mismatch.call_mismatches import MismatchFindings
from forensics.rules.reductions.mismatch.disagreements import BlockingMismatches, Disagreement
from forensics.rules.reductions.stacks.samples import StacksByRank
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.reductions.waits.graph import WaitGraph


def _evaluate(
    graph: WaitGraph,
    blocking: BlockingMismatches,
    mismatched: MismatchFindings,
    logs: LogEvents,
    stalls: Stalls,
    stalled: StallFindings,
) -> Iterator[Finding]:
    for stall in stalls:
        error = _own_exception(logs, stall.rank, graph.waiters(stall.rank))
        if error is not None and not is_leaving(stall):
            yield stalled.finding(stall, Cause.PYTHON_EXCEPTION, _steps(stall.rank, error), sources=(error,))
    for mismatch in blocking:
        for rank in mismatch.odd:
            error = _own_exception(logs, rank, mismatch.majority)
            if error is not None:
                yield _elsewhere(mismatched, mismatch, rank, error)


def _elsewhere(mismatched: MismatchFindings, mismatch: Disagreement, rank: int, error: LogEvent) -> Finding:
    """Build the finding on a rank that raised and is now in another call than its peers (a `finally`, a handler)."""
    step = _steps(rank, error)[0]
    found = mismatched.finding(mismatch, Cause.PYTHON_EXCEPTION, Confidence.LIKELY, step)
    raised = Evidence(f"log of rank {rank}: {error.text}", error.source)
    return replace(found, ranks=(rank,), evidence=(raised, *found.evidence))


def _steps(rank: int, error: LogEvent) -> tuple[str, ...]:
    return (f"rank {rank} raised and went on: {error.text}",)


def _own_exception(logs: LogEvents, rank: int, others: Iterable[int]) -> LogEvent | None:
    """The rank's last exception, when none of `others` has one: what everybody logs explains nobody."""
    raised = {rank for rank, events in logs.by_rank.items() if any(event.kind == "exception" for event in events)}
    lost = any(event.kind == "peer_closed" for event in logs.by_rank.get(rank, ()))
    if rank not in raised or lost or raised & set(others):
        return None
    return [event for event in logs.by_rank[rank] if event.kind == "exception"][-1]


def _clears(seen: Seen, logs: LogEvents) -> str | None:
    known = seen.all_in(seen.logged) and not logs.ranks("exception")
    return f"none of the logs of {len(seen.ranks)} ranks shows an exception" if known else None


RULE = Rule(
    code="FX115",
    name="exception-swallowed",
    seed="Flight Recorder practice",
    needs=(
        Need(Logs, "logs", "the exception is in the log only"),
        Need(StacksByRank, "stacks", "they show that the rank idles"),
    ),
    concludes="The rank that others wait for, alive, whose log alone shows an exception.",
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
