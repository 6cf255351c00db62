"""The kernel reports a rank's process as blocked, and no sampler could read its stack."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Belief, Cause, Component, Confidence, Evidence, Finding, StageName
from forensics.rules.interface import Need, Rule
from forensics.rules.reductions.ranks.kernel_lines import BlockedTask, BlockedTasks, LostStorage
from forensics.rules.reductions.ranks.roster import Roster, SeenProcesses
from forensics.rules.reductions.stacks.samples import StacksByRank, activity_of
from forensics.rules.reductions.text.evidence_text import EvidenceText
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.reductions.waits.graph import WaitGraph

# The kernel looks every two minutes: a second report, or twice the time, says that the first was no passing delay.
_LONG_S = 240


def _evaluate(
    roster: Roster, stacks: StacksByRank, graph: WaitGraph, blocked: BlockedTasks, storage: LostStorage, text: EvidenceText
) -> Iterator[Finding]:
    """Where most processes are blocked, it is what they use: nobody is named. A stack says more, and has rules of its own."""
    seen = [rank for rank, facts in roster.ranks.items() if facts.thread_states]
    if 2 * len(blocked) >= max(len(seen), 2):
        return
    for rank, task in blocked.items():
        awaited = any(wait.waiting and rank not in wait.waiting for wait in graph.waits)
        if awaited and not graph.waits_for.get(rank) and activity_of(stacks, rank) is None:
            yield _finding(roster, graph, text, rank, task, storage)


def _finding(
    roster: Roster, graph: WaitGraph, text: EvidenceText, rank: int, task: BlockedTask, storage: LostStorage
) -> Finding:
    facts = roster.rank(rank)
    return Finding(
        ranks=(rank,),
        cause=Cause.HOST_STALL,
        stage=text.stage_ref(rank, StageName.UNKNOWN, None, Component.HOST),
        belief=Belief.DIRECT_RECORD,
        confidence=Confidence.LIKELY if task.reports > 1 or task.seconds >= _LONG_S else Confidence.SUSPECT,
        evidence=(task.evidence, _state(rank, facts.wchan, facts.process_source), *storage.get(facts.host, ())),
        since=text.since(graph.waiting_for(rank)),
        next_steps=(f"read `/proc/{facts.pid}/stack`: it shows what the process waits for (storage, a driver, a lock)",),
    )


def _state(rank: int, wchan: str | None, source: str | None) -> Evidence:
    where = f" in {wchan}" if wchan else ""
    return Evidence(f"main thread of rank {rank} in uninterruptible sleep (state D){where} in every sample", source)


def _clears(seen: Seen, roster: Roster) -> str | None:
    running = [rank for rank, facts in roster.ranks.items() if facts.thread_states and "D" not in facts.thread_states]
    return f"{len(running)} of {len(seen.ranks)} rank processes are not in state D" if seen.all_in(running) else None


RULE = Rule(
    code="FX103",
    name="rank-process-blocked",
    seed="Flight Recorder practice",
    needs=(Need(SeenProcesses, "processes", "the state of a process is read from the host"),),
    concludes="A rank whose main thread the kernel found blocked while its peers wait, and whose stack nobody could read.",
    evaluate=_evaluate,
    clears=_clears,
)
