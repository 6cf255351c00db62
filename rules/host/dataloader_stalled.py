"""A rank waits for its next batch while its peers wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from forensics.model import Cause, Finding, StageName
from forensics.rules.interface import Maturity, Need, Rule
from forensics.rules.reductions.host.background import HelpedStalls
from forensics.rules.reductions.host.stalls import Stall, StallFindings
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.samples import StacksByRank
from forensics.rules.reductions.text.seen import Seen


def _evaluate(roster: Roster, helped_stalls: HelpedStalls, stalled: StallFindings) -> Iterator[Finding]:
    for helped in helped_stalls:
        stall = helped.stall
        if stall.stage is StageName.DATA and stall.explained:
            found = stalled.finding(stall, Cause.DATALOADER_STALL, _next_steps(roster, stall))
            yield replace(found, evidence=(*helped.evidence, *found.evidence))


def _next_steps(roster: Roster, stall: Stall) -> tuple[str, ...]:
    facts = roster.rank(stall.rank)
    where = f" on {facts.host}" if facts.host else ""
    reader = f"pid {stall.child.pid}" if stall.child else f"pid {facts.pid}" if facts.pid else "the process"
    return (
        f"see what {reader}{where} reads from (its open files and the last line of its stack) and whether that source answers",
        "compare with the same source on a healthy rank before the node is blamed",
    )


def _clears(seen: Seen) -> str | None:
    looked = f"none of {len(seen.ranks)} ranks, each sampled more than once"
    return f"{looked}, holds the others up while it loads data" if seen.all_in(seen.sampled) else None


RULE = Rule(
    code="FX110",
    name="dataloader-stalled",
    seed="Mycroft section 6.2 (py-spy)",
    needs=(Need(StacksByRank, "stacks", "only stacks show what a rank does outside collectives"),),
    concludes="A rank that every chain of waits ends in, with its main thread or its loader process in data loading.",
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
