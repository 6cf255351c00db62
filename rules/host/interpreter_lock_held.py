"""A native call of a rank holds Python's interpreter lock and does not come back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from forensics.model import Cause, Evidence, Finding, StageName
from forensics.rules.interface import Maturity, Need, Rule
from forensics.rules.reductions.host.background import HelpedStalls
from forensics.rules.reductions.host.interpreter_lock import LockHolders
from forensics.rules.reductions.host.stalls import Stall, StallFindings
from forensics.rules.reductions.stacks.samples import Sample, StacksByRank
from forensics.rules.reductions.text.seen import Seen

# Stages in which a blocked read or write explains the stall by itself; the lock is then a side effect of it.
_EXPLAINED = frozenset({StageName.DATA, StageName.CHECKPOINT})


def _evaluate(helped_stalls: HelpedStalls, stalled: StallFindings, holders: LockHolders) -> Iterator[Finding]:
    for stall in (helped.stall for helped in helped_stalls):
        holder = holders.get(stall.rank)
        if holder is not None:
            yield _finding(stalled, stall, holder)


def _finding(stalled: StallFindings, stall: Stall, holder: Sample) -> Finding:
    thread = "main thread" if holder.is_main else f"thread {holder.thread}"
    held = Evidence(
        f"{thread} of rank {stall.rank} held the interpreter lock in every sample, at {holder.activity.describe()}",
        holder.source,
    )
    found = stalled.finding(stall, Cause.GIL_HELD, _next_steps(holder))
    blocking = stall.stage in _EXPLAINED and stall.explained
    rivals = (f"a blocking call of {stall.stage} that keeps the lock is still that call",) if blocking else ()
    return replace(found, evidence=(held, *found.evidence), rivals=rivals)


def _next_steps(holder: Sample) -> tuple[str, ...]:
    where = holder.activity.application
    place = f" below {where}" if where else ""
    return (
        f"see which native call{place} keeps the lock (a native stack of pid {holder.pid} shows it); it should release it",
        "until then every Python thread of the rank stands still, watchdogs and dump threads included",
    )


def _clears(seen: Seen, holders: LockHolders) -> str | None:
    known = seen.all_in(seen.locks) and not any(holders.get(rank) for rank in seen.locks)
    return f"no thread of {len(seen.ranks)} ranks kept the interpreter lock over all samples" if known else None


RULE = Rule(
    code="FX116",
    name="interpreter-lock-held",
    seed="Flight Recorder practice",
    needs=(Need(StacksByRank, "stacks", "samplers show who holds the lock"),),
    concludes="The rank that others wait for and of which one thread holds the interpreter lock in a native call.",
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
