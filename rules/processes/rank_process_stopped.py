"""A rank's process is stopped by a signal, a debugger or the freezer."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Belief, Cause, Component, Confidence, Evidence, Finding, StageName
from forensics.rules.interface import Maturity, Need, Rule
from forensics.rules.reductions.ranks.roster import RankFacts, Roster, SeenProcesses
from forensics.rules.reductions.stacks.samples import StacksByRank, activity_of
from forensics.rules.reductions.text.evidence_text import EvidenceText
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.reductions.waits.graph import WaitGraph


def _evaluate(roster: Roster, stacks: StacksByRank, graph: WaitGraph, text: EvidenceText) -> Iterator[Finding]:
    for rank, facts in sorted(roster.ranks.items()):
        if facts.stopped and not facts.dead:
            yield _finding(stacks, graph, text, rank, facts)


def _finding(stacks: StacksByRank, graph: WaitGraph, text: EvidenceText, rank: int, facts: RankFacts) -> Finding:
    activity = activity_of(stacks, rank)
    waits = bool(graph.waits_for.get(rank))  # it issued its call: whoever has not is the root, the stop came on top
    return Finding(
        ranks=(rank,),
        cause=Cause.PROCESS_STOPPED,
        stage=text.stage_ref(rank, activity.stage if activity else StageName.UNKNOWN, activity, Component.HOST),
        belief=Belief.BEHIND_AND_BUSY if waits else Belief.DIRECT_RECORD,
        confidence=_confidence(facts, waits),
        rivals=("it had issued the call that it waits in: who has not issued it came first",) if waits else (),
        evidence=(*_process(facts), *text.waiters(rank), *text.stack(rank)),
        since=text.since(graph.waiting_for(rank)),
        next_steps=_next_steps(facts),
    )


def _confidence(facts: RankFacts, waits: bool) -> Confidence:
    if waits:
        return Confidence.SUSPECT
    return Confidence.CONFIRMED if len(facts.thread_states) > 1 else Confidence.LIKELY


def _process(facts: RankFacts) -> Iterator[Evidence]:
    states = facts.thread_states
    traced = f", traced by pid {facts.tracer}" if facts.tracer else ", no tracer"
    who = f"main thread of rank {facts.rank} (pid {facts.pid})"
    yield Evidence(
        f"{who} stopped (state {states[-1]}) in {len(states)} of {len(states)} samples{traced}", facts.process_source
    )


def _next_steps(facts: RankFacts) -> tuple[str, ...]:
    if facts.tracer:
        return (f"pid {facts.tracer} is attached to the rank as a debugger: detach it",)
    return (f"find who stopped pid {facts.pid} (operator, job control, cgroup freezer); `kill -CONT {facts.pid}` resumes it",)


def _clears(seen: Seen, roster: Roster) -> str | None:
    running = [rank for rank, facts in roster.ranks.items() if facts.thread_states and not facts.stopped]
    return f"{len(running)} of {len(seen.ranks)} rank processes are not stopped" if seen.all_in(running) else None


RULE = Rule(
    code="FX102",
    name="rank-process-stopped",
    seed="Flight Recorder practice",
    needs=(Need(SeenProcesses, "processes", "the state of a process is read from the host"),),
    concludes="The rank whose main thread every sample found in state T or t.",
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
