"""A rank is leaving the job (teardown, interpreter exit) while its peers still wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from forensics.model import Cause, Finding, Role, StageName, WaitKind
from forensics.rules.interface import Maturity, Need, Rule
from forensics.rules.reductions.host.stalls import Stall, StallFindings, Stalls, is_leaving
from forensics.rules.reductions.logs.events import LogEvent, LogEvents
from forensics.rules.reductions.mismatch.refused_sizes import raised_at
from forensics.rules.reductions.stacks.samples import StacksByRank
from forensics.rules.reductions.text.seen import Seen


def _evaluate(logs: LogEvents, stalls: Stalls, stalled: StallFindings) -> Iterator[Finding]:
    for stall in stalls:
        if is_leaving(stall):
            yield _finding(logs, stalled, stall)


def _finding(logs: LogEvents, stalled: StallFindings, stall: Stall) -> Finding:
    error, rank = _exception(logs, stall), stall.rank
    if error is None:
        step = f"find why rank {rank} finished before its peers (uneven inputs, a swallowed exception)"
        return stalled.finding(stall, Cause.EXTRA_OR_MISSING_COLLECTIVE, (step,))
    step = f"rank {rank} raised: {error.text}"
    place = raised_at(logs.by_rank.get(rank, ()))
    if place is not None and stall.stage is StageName.UNKNOWN:
        stall = replace(stall, stage=place.stage)
    found = stalled.finding(stall, Cause.PYTHON_EXCEPTION, (step,), sources=(error,))
    return replace(found, role=Role.VICTIM) if _lost_a_peer(logs, rank) else found


def _lost_a_peer(logs: LogEvents, rank: int) -> bool:
    """Whether the rank leaves because a connection to another one broke: then it is a victim."""
    return any(event.kind == "peer_closed" for event in logs.by_rank.get(rank, ()))


def _exception(logs: LogEvents, stall: Stall) -> LogEvent | None:
    found = [event for event in logs.by_rank.get(stall.rank, ()) if event.kind == "exception"]
    return found[-1] if found else None


def _clears(seen: Seen, stacks: StacksByRank) -> str | None:
    leaving = [found for found in stacks.values() if found.latest and found.latest.wait is WaitKind.EXITING]
    known = seen.all_in(seen.stacks) and not leaving
    return f"none of {len(seen.ranks)} ranks, by their stacks, is in teardown" if known else None


RULE = Rule(
    code="FX114",
    name="left-early",
    seed="Flight Recorder practice",
    needs=(Need(StacksByRank, "stacks", "only stacks show teardown"),),
    concludes="A rank in teardown that others wait for: it raised (its log says what) or it ran out of work before them.",
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
