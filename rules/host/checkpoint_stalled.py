"""A rank is stuck writing or reading a checkpoint while its peers wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from forensics.model import Cause, Finding, StageName
from forensics.rules.interface import Maturity, Need, Rule
from forensics.rules.reductions.host.background import HelpedStalls
from forensics.rules.reductions.host.stalls import Stall, StallFindings
from forensics.rules.reductions.progress.liveness import Liveness
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.samples import StacksByRank
from forensics.rules.reductions.text.seen import Seen


def _evaluate(roster: Roster, liveness: Liveness, helped_stalls: HelpedStalls, stalled: StallFindings) -> Iterator[Finding]:
    for helped in helped_stalls:
        stall = helped.stall
        if stall.stage is StageName.CHECKPOINT and stall.explained and not _at_work(roster, liveness, stall):
            found = stalled.finding(stall, Cause.CHECKPOINT_STALL, _next_steps(roster, stall))
            yield replace(found, evidence=(*helped.evidence, *found.evidence))


def _at_work(roster: Roster, liveness: Liveness, stall: Stall) -> bool:
    """Whether it runs in every sample, and nothing tells for how long the others wait: saving takes its time in a sound job."""
    states = roster.rank(stall.rank).thread_states
    undated = liveness.silence_ns is None and not liveness.frozen
    return undated and stall.child is None and len(states) > 1 and set(states) == {"R"}


def _next_steps(roster: Roster, stall: Stall) -> tuple[str, ...]:
    facts = roster.rank(stall.rank)
    where = f" on {facts.host}" if facts.host else ""
    writer = f"pid {stall.child.pid}" if stall.child else f"pid {facts.pid}" if facts.pid else "the process"
    return (
        f"check the target that {writer}{where} writes to: mount, quota, free space (statvfs in a shell that can be killed)",
        "a large checkpoint can be slow rather than stuck: compare with the time of the previous one",
    )


def _clears(seen: Seen, helped_stalls: HelpedStalls) -> str | None:

    saving = any(helped.stall.stage is StageName.CHECKPOINT for helped in helped_stalls)
    if saving or not seen.all_in(seen.sampled):
        return None
    return f"none of {len(seen.ranks)} ranks, each sampled more than once, holds the others up inside a checkpoint"


RULE = Rule(
    code="FX111",
    name="checkpoint-stalled",
    seed="Mycroft section 6.2 (py-spy)",
    needs=(Need(StacksByRank, "stacks", "only stacks show what a rank does outside collectives"),),
    concludes="A rank that every chain of waits ends in, inside a checkpoint itself or waiting for its writer process.",
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
