"""A rank keeps a CPU busy in one function of its own code and does not come to the operation its peers wait in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from forensics.model import Cause, Evidence, Finding
from forensics.rules.interface import Maturity, Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.host.background import HelpedStalls
from forensics.rules.reductions.host.stalls import Stall, StallFindings
from forensics.rules.reductions.host.work import BUSY_SHARE, HostSigns, HostWork, looping_frame
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.samples import StacksByRank
from forensics.rules.reductions.text.seen import Seen


def _evaluate(
    roster: Roster,
    stacks: StacksByRank,
    helped_stalls: HelpedStalls,
    stalled: StallFindings,
    signs: HostSigns,
    thresholds: Thresholds,
) -> Iterator[Finding]:
    for helped in helped_stalls:
        if signs.work(helped.stall, thresholds["busy_share"]) is HostWork.BUSY:
            yield _finding(roster, stacks, stalled, helped.stall)


def _finding(roster: Roster, stacks: StacksByRank, stalled: StallFindings, stall: Stall) -> Finding:
    found = stalled.finding(stall, Cause.HOST_STALL, _next_steps(stacks, stall))
    return replace(found, evidence=(_loops(roster, stacks, stall), *found.evidence))


def _loops(roster: Roster, stacks: StacksByRank, stall: Stall) -> Evidence:
    facts, samples = roster.rank(stall.rank), stacks[stall.rank].main
    where = looping_frame(stacks[stall.rank])
    name = f"{where.name} ({where.module.rsplit('/', 1)[-1]})" if where else "one function"
    frames = [entry for sample in samples for entry in sample.activity.path if where and entry.plain[:2] == where.plain[:2]]
    lines = {str(entry.line) for entry in frames if entry.line}
    at = f", lines {', '.join(sorted(lines, key=int))}" if len(lines) > 1 else ""
    share = "the sampler saw it on a CPU" if facts.cpu_share is None else f"it used {facts.cpu_share:.0%} of a CPU"
    text = f"rank {stall.rank} was in {name}{at} in all {len(samples)} stack samples while {share}"
    return Evidence(text, facts.process_source or samples[-1].source)


def _next_steps(stacks: StacksByRank, stall: Stall) -> tuple[str, ...]:
    where = looping_frame(stacks[stall.rank])
    return (
        f"read the loop at {where} of rank {stall.rank}: for its input the exit condition may never hold",
        "long work leaves the same evidence as an endless loop: a second collection some minutes later distinguishes them",
    )


def _clears(seen: Seen, signs: HostSigns) -> str | None:
    looping = [rank for rank in seen.sampled & seen.timed if signs.busy(rank, BUSY_SHARE)]
    known = seen.all_in(seen.sampled & seen.timed) and not looping
    return f"the main thread of none of {len(seen.ranks)} ranks kept a CPU busy in one function" if known else None


RULE = Rule(
    code="FX118",
    name="host-busy",
    seed="Mycroft section 6.2 (py-spy)",
    needs=(Need(StacksByRank, "stacks", "the same function in several samples shows the loop"),),
    thresholds=(
        Threshold("busy_share", BUSY_SHARE, "a thread that polls with pauses uses far less than half a CPU, a loop all of one"),
    ),
    concludes="A rank that every chain of waits ends in, busy on a CPU in one function over all samples.",
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
