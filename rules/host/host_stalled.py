"""A rank is busy or blocked in host code outside any collective while its peers wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from forensics.model import Cause, Confidence, Evidence, Finding, WaitKind
from forensics.rules.interface import Maturity, Rule
from forensics.rules.reductions.host.background import HelpedStalls
from forensics.rules.reductions.host.outside import MessagesFromOutside, typed_at
from forensics.rules.reductions.host.stalls import Stall, StallFindings, is_leaving
from forensics.rules.reductions.host.store_waits import StoreWaits
from forensics.rules.reductions.host.work import HostSigns, HostWork, at_prompt
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.activity import Activity
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.reductions.waits.graph import WaitGraph

# Modules that read from pipes and files, or from whatever is ready.
_LOCAL = ("multiprocessing/", "selectors.py", "shutil.py")
_KNOWN_WORK = frozenset({HostWork.LOCK, HostWork.COMPILE, HostWork.COLLECT})


def _evaluate(
    roster: Roster,
    helped_stalls: HelpedStalls,
    stalled: StallFindings,
    signs: HostSigns,
    messages: MessagesFromOutside,
    keys: StoreWaits,
) -> Iterator[Finding]:
    for stall in (helped.stall for helped in helped_stalls):
        if stall.explained or is_leaving(stall) or signs.work(stall) in _KNOWN_WORK:
            continue
        found = stalled.finding(stall, Cause.HOST_STALL, _next_steps(roster, stall))
        if stall.rank in keys:
            yield _waits_for_a_key(found, stall, keys[stall.rank])
        else:
            yield _doubted(found, messages[stall.rank]) if stall.rank in messages else found


def _waits_for_a_key(found: Finding, stall: Stall, store: str) -> Finding:
    """Whoever should set the key may be another rank, which waits in a collective by now."""
    where = stall.activity.application if stall.activity else None
    doubt = f"rank {stall.rank} waits for a key of the job's store ({store}); which rank should set it is unknown"
    step = f"see which key rank {stall.rank} asks the store for{f' at {where}' if where else ''}, and which rank sets it"
    return replace(_doubted(found, doubt), next_steps=(step,))


def _doubted(found: Finding, doubt: str) -> Finding:
    against = Evidence(doubt, None, supports=False)
    return replace(found, confidence=Confidence.SUSPECT, evidence=(*found.evidence, against))


def _next_steps(roster: Roster, stall: Stall) -> tuple[str, ...]:
    facts = roster.rank(stall.rank)
    if stall.activity is None:
        return (f"take stacks of rank {stall.rank}: the recorder shows that it is behind, not what it does",)
    where = stall.activity.application
    place = f" at {where}" if where else ""
    read = f"read the code of rank {stall.rank}{place}"
    read = f"{read}; pid {facts.pid} can be sampled again" if facts.pid else read
    who = f"pid {facts.pid}" if facts.pid else f"the process of rank {stall.rank}"
    if (typed := typed_at(facts.waits_on)) and not at_prompt(stall.activity.path):
        return (f"{who} waits for a line of input ({typed}): answer it, or take the question out of the job", read)
    looked_up = _look_up(stall.activity, who, facts.pid)
    return (read,) if looked_up is None else (looked_up, read)


def _look_up(activity: Activity, who: str, pid: int | None) -> str | None:
    """What to look at first, where the stack shows what is waited for."""
    number = pid or "PID"
    if at_prompt(activity.path):
        return f"{who} waits for a command at the prompt of a debugger: take the breakpoint out of the code"
    if activity.wait is WaitKind.CHILD:
        return (
            f"see what the child processes of {who} do (ps --ppid {number} -o pid,stat,wchan,args): one that waits in a pipe "
            "may have written more than anybody reads"
        )
    if activity.wait is WaitKind.IO and activity.call_frame is not None and not activity.call_frame.module.startswith(_LOCAL):
        return f"see whose answer {who} waits for (ss -tnp | grep pid={number}), and whether that service is alive"
    return None


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
