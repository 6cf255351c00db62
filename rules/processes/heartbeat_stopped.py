"""The collector inside a process stopped beating while those of its peers went on, and they wait for that rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from forensics.model import Belief, Cause, Confidence, Evidence, Finding, StageName
from forensics.rules.interface import Need, Rule
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.network.work_requests import QueuePairs
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.ranks.shim_logs import ShimLog, ShimLogs, heartbeat_gaps, last_beats
from forensics.rules.reductions.stacks.samples import StacksByRank, activity_of
from forensics.rules.reductions.text import evidence_text
from forensics.rules.reductions.text.evidence_text import EvidenceText
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.reductions.waits.graph import WaitGraph


def _evaluate(
    roster: Roster,
    stacks: StacksByRank,
    graph: WaitGraph,
    calls: Calls,
    shim: ShimLogs,
    queue_pairs: QueuePairs,
    text: EvidenceText,
) -> Iterator[Finding]:
    for rank, log in sorted(shim.items()):
        facts = roster.rank(rank)
        silent = facts.heartbeat_gap_ns or (log.ended and calls.from_shim)
        if silent and not (facts.dead or facts.stopped) and (graph.waiting_for(rank) or graph.waiters(rank)):
            said = _words(rank, log, facts.heartbeat_gap_ns or 0, last_beats(shim.values())[rank])
            yield _finding(roster, stacks, graph, queue_pairs, text, log, said)


def _finding(
    roster: Roster, stacks: StacksByRank, graph: WaitGraph, queue_pairs: QueuePairs, text: EvidenceText, log: ShimLog,
    said: Sequence[str],
) -> Finding:  # fmt: skip
    """Nothing in a log shows a killed process from a stopped one; connections that broke to it, or a collector, do."""
    rank = log.rank
    broken = [pair for pair in queue_pairs if pair.peer == rank and pair.status is not None]
    errors = tuple(
        Evidence(f"queue pair {p.name} of rank {p.rank} to rank {rank} failed (status {p.status})", p.source) for p in broken
    )
    alive = roster.rank(rank).state == "alive"
    return Finding(
        ranks=(rank,),
        cause=Cause.UNKNOWN if alive else Cause.PROCESS_DEAD,
        stage=text.stage_ref(rank, StageName.UNKNOWN, activity_of(stacks, rank)),
        belief=Belief.DIRECT_RECORD,
        confidence=Confidence.LIKELY if log.ended or (broken and not alive) else Confidence.SUSPECT,
        evidence=(
            Evidence(said[0], log.source),
            *errors[:3],
            *text.waiters(rank),
            *(Evidence(against, supports=False) for against in said[1:]),
        ),
        since=text.since(graph.waiting_for(rank)),
        next_steps=(
            f"check whether the process of rank {rank} exists, its exit status, the OOM killer and its last log lines",
        ),
    )


def _words(rank: int, log: ShimLog, gap_ns: int, on_its_host_ns: int) -> Sequence[str]:
    """What the end of the log says, and what else would leave it so."""
    if log.ended:
        return (f"the process of rank {rank} ended in order, as its log says, while others wait for it",)
    ends = "without an orderly exit: the process was killed, crashed, or is stopped"
    if log.copied_ns is None and on_its_host_ns - log.end_ns < gap_ns:
        others = f"those of all other hosts go on for {gap_ns / 1e9:.0f} s, in which nothing moved"
        copied = f"a log that was copied at the moment of the stall, {gap_ns / 1e9:.0f} s before the others, ends like that too"
        return f"the log of rank {rank} ends in the midst of work, {ends}; {others}", copied
    return (f"the heartbeat in the process of rank {rank} stopped {gap_ns / 1e9:.0f} s before its log was taken, {ends}",)


def _clears(seen: Seen, roster: Roster, shim: ShimLogs) -> str | None:
    """A heartbeat is measured against the copy of its log, or against others of its host; without either it says nothing."""
    measured = heartbeat_gaps(shim.values()).keys() | {rank for rank, log in shim.items() if log.ended}
    if any(facts.heartbeat_gap_ns for facts in roster.ranks.values()) or not seen.all_in(measured):
        return None
    return f"the heartbeat of {evidence_text.ranks_text(shim)} went on to the end, or the process ended in order"


RULE = Rule(
    code="FX146",
    name="heartbeat-stopped",
    seed="VenusTrace section 4.2",
    needs=(Need(ShimLogs, "shim", "the heartbeat is in the log of the collector inside the process"),),
    concludes="A rank whose process showed no life any more while its peers waited for it.",
    evaluate=_evaluate,
    clears=_clears,
)
