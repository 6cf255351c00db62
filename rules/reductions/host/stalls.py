"""Ranks that others wait for, alive and busy with something else: what they do, from their own and their children's stacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NewType

from forensics.model import Belief, Cause, Confidence, Evidence, Finding, StageName, WaitKind
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.logs.events import LogEvent
from forensics.rules.reductions.progress.at_work import at_work
from forensics.rules.reductions.ranks.children import ChildProcesses
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.ranks.shim_logs import ChunkLogs, ShimLogs
from forensics.rules.reductions.stacks.activity import Activity
from forensics.rules.reductions.stacks.samples import Sample, Stacks, StacksByRank, activity_of
from forensics.rules.reductions.text import evidence_text
from forensics.rules.reductions.text.evidence_text import EvidenceText
from forensics.rules.reductions.waits.device_waits import DeviceWaits
from forensics.rules.reductions.waits.graph import WaitGraph
from forensics.rules.reductions.waits.messages import MessageWaits
from forensics.rules.reductions.waits.unrecorded import stands_with_waiters

# Hosts whose ranks stand still at once.
_SEVERAL = 2
_POLLING = frozenset({WaitKind.CHILD, WaitKind.DATA, WaitKind.LOCK, WaitKind.IO, WaitKind.UNKNOWN, WaitKind.SLEEP})
# Stages whose own rules name the cause; what the host does there is a detail of them.
EXPLAINED = frozenset({StageName.DATA, StageName.CHECKPOINT, StageName.INIT})
# Stages of a child process that explain a parent that polls it.
_CHILD_STAGES = (StageName.CHECKPOINT, StageName.DATA)


@dataclass(frozen=True, slots=True)
class Stall:
    """One free root: its rank, the stage it was in, the activity that stated it, and the child process that explains it.

    `by_words` is set when only the job's own names tell the stage: they describe it, and decide nothing.
    """

    rank: int
    stage: StageName
    activity: Activity | None
    child: Sample | None
    by_words: bool = False

    @property
    def explained(self) -> bool:
        """Whether the stage has a rule of its own, and more than words tells it."""
        return self.stage in EXPLAINED and not self.by_words


Stalls = NewType("Stalls", tuple[Stall, ...])
"""Free roots whose process lives and runs and waits for nobody's message."""


@reduction
def stalls(
    graph: WaitGraph, roster: Roster, stacks: StacksByRank, messages: MessageWaits, devices: DeviceWaits, shim: ShimLogs,
    calls: Calls, groups: Communicators, chunks: ChunkLogs,
) -> Stalls:  # fmt: skip
    """Find the free roots whose process lives and runs and waits neither for a message nor for its device, in rank order.

    Of one without a stack that is not known while its record shows no more than that of a rank which waits, nor while all of
    them may still be in the newest call of one group.
    """
    facts = [roster.rank(root.ranks[0]) for root in graph.free_roots]
    ended = {rank for rank, log in shim.items() if log.ended} if calls.from_shim else set()
    gone = {f.rank for f in facts if f.dead or f.stopped or f.heartbeat_gap_ns or f.unseen or f.rank in ended}
    left_out = gone | messages | devices | _perhaps_inside([f for f in facts if not f.has_stack], groups, calls, chunks)
    alive = [f.rank for f in facts if f.rank not in left_out]
    return Stalls(tuple(_stall(graph, stacks, rank) for rank in alive if not stands_with_waiters(roster, graph, rank)))


def _perhaps_inside(roots: Sequence[RankFacts], groups: Communicators, calls: Calls, chunks: ChunkLogs) -> set[int]:
    """Roots on several hosts that have all entered the newest call of one group with all of its members, where logs of calls
    alone show nobody leave a call: one fault inside it is nearer than as many outside."""
    ranks = {facts.rank for facts in roots}
    if not calls.logged_only >= ranks or chunks & ranks or len({facts.host for facts in roots}) < _SEVERAL:
        return set()
    whole = (group for group in groups if ranks <= set(group.members) and group.heard == 1)
    return ranks if any(len({place.entered for place in group.positions.values()}) == 1 for group in whole) else set()


def _stall(graph: WaitGraph, stacks: StacksByRank, rank: int) -> Stall:
    found, latest = stacks.get(rank), activity_of(stacks, rank)
    if found is None or latest is None:
        return Stall(rank, StageName.UNKNOWN, None, None)
    starts = _peers_initialise(graph, stacks, rank)
    stage = StageName.INIT if starts else _steady_stage(found)
    by_words = not starts and all(s.activity.words_alone for s in found.main if s.activity.stage is stage)
    blocked = _explaining_child(found, stage) if latest.wait in _POLLING else None
    if stage is StageName.UNKNOWN and blocked:
        stage = blocked.activity.stage
    return Stall(rank, stage, latest, blocked, by_words and blocked is None)


def _peers_initialise(graph: WaitGraph, stacks: StacksByRank, rank: int) -> bool:
    """Whether everyone who waits for this rank waits in a rendezvous or store: whatever it does, it holds up the start."""
    activities = [activity_of(stacks, waiter) for waiter in graph.waiters(rank)]
    return bool(activities) and all(found is not None and found.wait is WaitKind.STORE for found in activities)


def _steady_stage(found: Stacks) -> StageName:
    """The stage of the newest sample, unless the samples disagree: then the one most of them show."""
    seen = [sample.activity.stage for sample in found.main]
    newest = seen[-1]
    return max(dict.fromkeys(reversed(seen)), key=lambda stage: (seen.count(stage), stage is newest))


def _explaining_child(found: Stacks, stage: StageName) -> Sample | None:
    children = found.latest_children()
    wanted = (stage,) if stage in _CHILD_STAGES else _CHILD_STAGES if stage is StageName.UNKNOWN else ()
    busy = [child for child in children if child.activity.stage in wanted and not child.activity.words_alone]
    # A worker that waits for its next index is idle; the one inside the job's own code is the one that is stuck.
    return next((child for child in busy if child.activity.application is not None and not _idle(child)), None)


def _idle(child: Sample) -> bool:
    return child.activity.wait is WaitKind.LOCK and child.activity.python_path[0].origin == "stdlib"


def is_leaving(stall: Stall) -> bool:
    """Whether the rank is in teardown or interpreter exit."""
    return stall.activity is not None and stall.activity.wait is WaitKind.EXITING


@reduction
@dataclass(frozen=True, slots=True)
class StallFindings:
    """Findings on stalled roots."""

    text: EvidenceText
    graph: WaitGraph
    roster: Roster
    stacks: StacksByRank
    children: ChildProcesses

    def finding(self, stall: Stall, cause: Cause, next_steps: tuple[str, ...], sources: tuple[LogEvent, ...] = ()) -> Finding:
        """Build the finding of a rule on a stalled root; `sources` are log lines to add to its evidence."""
        noted = tuple(Evidence(f"log of rank {stall.rank}: {event.text}", event.source) for event in sources)
        return Finding(
            ranks=(stall.rank,),
            cause=cause,
            stage=self.text.stage_ref(stall.rank, stall.stage, stall.activity),
            belief=Belief.BEHIND_AND_BUSY,
            confidence=self._confidence(stall.rank),
            evidence=(*self._evidence(stall), *noted),
            since=self.text.since(self.graph.waiting_for(stall.rank)),
            next_steps=next_steps,
        )

    def _evidence(self, stall: Stall) -> Iterator[Evidence]:
        """All evidence on a stalled root, the most telling first: its child's stack, its own, who waits, its process."""
        if stall.child:
            yield evidence_text.child(stall.child, stall.rank)
        yield from self.text.stack(stall.rank)
        yield from self.text.waiters(stall.rank)
        yield from self.text.process(stall.rank)
        if self._is_counted(stall.rank):
            yield Evidence("its dumps hold no calls: it is behind by the counters of a group alone", supports=False)
        if stall.activity is not None and stall.activity.event_loop is not None:
            alike = "its event loop sleeps: stacks show no task, and a server without requests leaves the same evidence"
            yield Evidence(alike, self.stacks[stall.rank].main[-1].source, supports=False)

    def _is_counted(self, rank: int) -> bool:
        waits = self.graph.waiting_for(rank)
        return bool(waits) and all(wait.is_counted for wait in waits)

    def _confidence(self, rank: int) -> Confidence:
        """Confirmed when recorder, repeated stacks and the kernel agree; likely when two kinds do,
        or when the recorder shows that at least half of the ranks end up waiting for it; else suspect, as by counters alone.

        Suspect as well where those who wait only pause or read in the job's own code (that it is a barrier is a guess), or
        where its event loop sleeps. Not confirmed where it is at work: long work and an endless loop look the same.
        """
        waiters = self.graph.waiters(rank)
        if waiters and all(waiter in self.stacks and self.stacks[waiter].rests for waiter in waiters):
            return Confidence.SUSPECT
        facts, found = self.roster.rank(rank), self.stacks.get(rank)
        if self._is_counted(rank) and found is None:
            return Confidence.SUSPECT
        if found is not None and found.latest is not None and found.latest.event_loop is not None:
            return Confidence.SUSPECT
        recorded = any(rank in wait.absent and wait.records(rank) for wait in self.graph.waiting_for(rank))
        stayed = found is not None and len(found.main) > 1 and not found.moved
        if recorded and stayed and bool(facts.thread_states):
            return Confidence.LIKELY if at_work(facts, found, self.children.get(rank, ())) else Confidence.CONFIRMED
        if recorded and 2 * len(self.graph.waiters(rank)) >= len(self.roster.ranks):
            return Confidence.LIKELY
        kinds = recorded + (found is not None and bool(found.main)) + bool(facts.thread_states)
        return Confidence.LIKELY if kinds >= 2 else Confidence.SUSPECT
