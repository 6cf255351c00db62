"""A rank is busy or blocked in host code outside any collective while its peers wait for it."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Cause, Finding
from forensics.rules.interface import Maturity, Rule
from forensics.rules.reductions.host.background import HelpedStalls
from forensics.rules.reductions.host.stalls import Stall, StallFindings, is_leaving
from forensics.rules.reductions.host.work import HostSigns, HostWork
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.reductions.waits.graph import WaitGraph

_KNOWN_WORK = frozenset({HostWork.LOCK, HostWork.COMPILE, HostWork.COLLECT})


def _evaluate(roster: Roster, helped_stalls: HelpedStalls, stalled: StallFindings, signs: HostSigns) -> Iterator[Finding]:
    for stall in (helped.stall for helped in helped_stalls):
        if not stall.explained and not is_leaving(stall) and signs.work(stall) not in _KNOWN_WORK:
            yield stalled.finding(stall, Cause.HOST_STALL, _next_steps(roster, stall))


def _next_steps(roster: Roster, stall: Stall) -> tuple[str, ...]:
    facts = roster.rank(stall.rank)
    if stall.activity is None:
        return (f"take stacks of rank {stall.rank}: the recorder shows that it is behind, not what it does",)
    where = stall.activity.application
    place = f" at {where}" if where else ""
    return (
        f"read the code of rank {stall.rank}{place}; pid {facts.pid} can be sampled again"
        if facts.pid
        else f"read the code{place}",
    )


def _clears(seen: Seen, roster: Roster, graph: WaitGraph, helped_stalls: HelpedStalls, signs: HostSigns) -> str | None:
    if not (graph.recorded and seen.all_in(roster.ranks)) or any(facts.unseen for facts in roster.ranks.values()):
        return None
    special = [
        s for s in (helped.stall for helped in helped_stalls) if s.explained or is_leaving(s) or signs.work(s) in _KNOWN_WORK
    ]
    if special:
        return "the lagging rank matches a more specific rule"
    return "no rank is behind its peers outside a collective"


RULE = Rule(
    code="FX112",
    name="host-stalled",
    seed="VenusTrace section 4.2",
    concludes="A live rank that every chain of waits ends in and that has not issued the operation its peers wait in.",
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
