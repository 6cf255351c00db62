"""NCCL RAS shows a rank that launched fewer collectives than its peers, or a process that does not answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from forensics.model import (
    Belief,
    Cause,
    Component,
    Confidence,
    Evidence,
    Family,
    Finding,
    Mechanism,
    Role,
    StageName,
    StageRef,
)
from forensics.rules.interface import Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.ranks.roster import RankFacts, RecordedRanks, Roster
from forensics.rules.reductions.ras.counts import is_mixed, is_settled, label_of
from forensics.rules.reductions.ras.report import Process, Ras, RasGroup, RasMember
from forensics.rules.reductions.stacks.samples import StacksByRank, activity_of
from forensics.rules.reductions.text import evidence_text
from forensics.rules.reductions.text.evidence_text import EvidenceText
from forensics.rules.reductions.waits.graph import Root, RootKind, WaitGraph

_SHOWN = 3
_NO_ERRORS = frozenset({0, 7})
"""ncclSuccess and ncclInProgress."""
_ERRORS = {1: "unhandled CUDA error", 2: "system error", 3: "internal error", 6: "remote process error"}


@dataclass(frozen=True, slots=True)
class _Lag:
    """One place where a rank is behind: what it launched of a kind, and the most that others did."""

    group: RasGroup
    member: RasMember
    kind: str
    launched: int
    most: int


def _evaluate(
    ras: Ras,
    graph: WaitGraph,
    roster: Roster,
    dumped: RecordedRanks,
    liveness: Liveness,
    text: EvidenceText,
    thresholds: Thresholds,
) -> Iterator[Finding]:
    mixed = [
        (group, member) for group in ras.groups if is_settled(group) for member in group.members if is_mixed(group, member)
    ]
    behind = _behind_by_rank(ras, graph)
    roots = {rank: lags for rank, lags in behind.items() if not _communicates(text.stacks, rank)}
    if _is_minority(roots) and not ras.trained_on:
        stalled = liveness.motion is Motion.STALLED
        unsettled = tuple(_unsettled(ras, 1 if stalled else thresholds["settled_gap_s"]))
        doubts = (*unsettled, *_doubts(ras, roots, bool(mixed)))
        for rank, lags in roots.items():
            # Counts of its peers that did not grow over captures far apart: the job stands still, whoever is named as waiting.
            lasts = not unsettled and len(roots) == 1 and all(lag.member.still for lag in lags)
            yield _late_finding(ras, text, rank, lags, doubts, lasts)
    yield from _lost(ras, graph, roster)
    if not behind and len(mixed) == 1 and not dumped:
        yield from _elsewhere(ras, *mixed[0])


def _behind_by_rank(ras: Ras, graph: WaitGraph) -> dict[int, tuple[_Lag, ...]]:
    """The roots that only counters show, with their lags; ranks that moved between two captures are no evidence."""
    moved = {ras.ranks.get(m.process) for group in ras.groups for m in group.members if m.process and m.moved}
    places = {label_of(group, kind): (group, kind) for group in ras.groups for kind in group.usual}
    free = [root for root in graph.reported_roots if root.kind is RootKind.FREE and root.ranks[0] not in moved]
    found = {root.ranks[0]: tuple(_lags(ras, root, places)) for root in free}
    return {rank: behind for rank, behind in found.items() if behind}


def _lags(ras: Ras, root: Root, places: Mapping[str, tuple[RasGroup, str]]) -> Iterator[_Lag]:
    (rank,) = root.ranks
    for label in dict.fromkeys(wait.communicator for wait in root.waits if wait.families.get(rank) is Family.RAS):
        group, kind = places[label]
        member = next(m for m in group.members if m.process and ras.ranks.get(m.process) == rank)
        if member.still or ras.captures < 2:
            most = max((group.usual[kind], *(other.counts.get(kind, 0) for other in group.members)))
            yield _Lag(group, member, kind, member.counts[kind], most)


def _is_minority(roots: dict[int, tuple[_Lag, ...]]) -> bool:
    """Whether those that are behind and wait for nobody are the smaller part of those they are compared with."""
    compared = {member.process for lags in roots.values() for lag in lags for member in lag.group.members}
    sizes = [lag.group.size or len(lag.group.members) for lags in roots.values() for lag in lags]
    return bool(roots) and len(roots) * 2 <= max(len(compared), *sizes)


def _communicates(stacks: StacksByRank, rank: int) -> bool:
    """Whether the rank's own stack is inside communication: it waits in a call that RAS does not count."""
    found = stacks.get(rank)
    return found is not None and (found.communicating or found.below_autograd or found.in_store)


def _doubts(ras: Ras, roots: dict[int, tuple[_Lag, ...]], mixed: bool) -> Iterator[str]:
    """Why this is a suspicion only, in words."""
    if len(roots) > 1:
        yield f"{len(roots)} ranks are behind, and RAS does not show which of them the others wait for"
    if ras.lost:
        yield f"{evidence_text.counted(len(ras.lost), 'process')} did not answer RAS, and may be what all wait for"
    processes = {lag.member.process for lags in roots.values() for lag in lags}
    if not ras.complete or any(_may_wait(group, process) for process in processes for group in ras.groups):
        yield "the report does not name all ranks and communicators: the rank may wait where it is not named"
    if mixed:
        yield "in another communicator ranks launched different kinds of collectives"
    if any(group.unused and any(m.process in processes for m in group.members) for group in ras.groups):
        yield "the rank is in a communicator without counted calls: RAS counts neither point-to-point calls nor captured graphs"


def _may_wait(group: RasGroup, process: Process | None) -> bool:
    """Whether the rank may be in a set without names that differs from others: then it may wait there for somebody else."""
    own = next((member.counts for member in group.members if member.process == process), {})
    differing = {kind for kind, usual in group.usual.items() for m in group.members if m.counts.get(kind, usual) != usual}
    return is_settled(group) and any(kind in differing and kind not in own for kind, _ in group.unnamed)


def _unsettled(ras: Ras, least_gap_s: float) -> Iterator[str]:
    """Why the captures do not show that anything stands still."""
    if ras.captures < 2:
        yield "RAS was asked once: in a moving job ranks differ all the time"
    elif ras.gap_s is None:
        yield "the time between the captures is unknown"
    elif ras.gap_s < least_gap_s:
        yield f"the captures are {ras.gap_s:.0f} s apart, and nothing else shows a standstill: a long step can look like this"


def _late_finding(
    ras: Ras, text: EvidenceText, rank: int, behind: tuple[_Lag, ...], doubts: tuple[str, ...], lasts: bool
) -> Finding:
    process = next(process for process, named in ras.ranks.items() if named == rank)
    return Finding(
        ranks=(rank,),
        cause=Cause.HOST_STALL,
        stage=StageRef(
            name=_stage(text.stacks, rank),
            component=Component.HOST,
            operation=behind[0].kind,
            communicator=behind[0].group.communicator,
        ),
        belief=Belief.DIRECT_RECORD if lasts else Belief.BEHIND_AND_BUSY,
        confidence=Confidence.SUSPECT if doubts else Confidence.LIKELY,
        evidence=(*_behind(ras, rank, behind), *_error(rank, behind), *text.stack(rank), *_against(doubts)),
        mechanism=Mechanism("not_started", "local"),
        next_steps=(f"take a stack and a Flight Recorder dump of {_who(ras, process)}: RAS shows that it is behind, not why",),
    )


def _stage(stacks: StacksByRank, rank: int) -> StageName:
    found = activity_of(stacks, rank)
    return found.stage if found else StageName.UNKNOWN


def _behind(ras: Ras, rank: int, behind: tuple[_Lag, ...]) -> Iterator[Evidence]:
    several = "in both reports" if ras.captures == 2 else f"in all {ras.captures} reports"
    how = several if ras.captures > 1 else "in the only report"
    for lag in behind[:_SHOWN]:
        yield Evidence(
            f"rank {rank} launched up to {lag.kind} {lag.launched} of communicator {lag.group.communicator} {how} of RAS, "
            f"its peers up to {lag.most}; it is ahead of nobody in another collective",
            lag.member.source,
        )
    if len(behind) > _SHOWN:
        yield Evidence(
            f"it is behind in {evidence_text.counted(len(behind) - _SHOWN, 'more place')}", behind[_SHOWN].member.source
        )
    if ras.method == "world":
        yield Evidence("global ranks are those of the communicator of all GPUs", behind[0].member.source)


def _error(rank: int, behind: tuple[_Lag, ...]) -> Iterator[Evidence]:
    member = next((lag.member for lag in behind if lag.member.async_error not in _NO_ERRORS), None)
    if member:
        name = _ERRORS.get(member.async_error, "error")
        yield Evidence(f"RAS reports asynchronous error {member.async_error} ({name}) of rank {rank}", member.source)


def _against(doubts: tuple[str, ...]) -> Iterator[Evidence]:
    for doubt in doubts:
        yield Evidence(doubt, None, supports=False)


def _who(ras: Ras, process: Process) -> str:
    address, pid, _ = process
    return f"rank {ras.ranks[process]} (pid {pid} at {address})"


def _lost(ras: Ras, graph: WaitGraph, roster: Roster) -> Iterator[Finding]:
    """Processes that did not answer: dead, stopped, or cut off; a suspicion at most, for RAS sees its own network only."""
    named = [process for process in sorted(ras.lost) if process in ras.ranks]
    largest = max((group.size or 0 for group in ras.groups), default=0)
    if 2 * len(named) > max(len(roster.ranks), roster.world_size or 0, largest):
        return
    for process in named:
        yield _lost_finding(ras, process, roster.rank(ras.ranks[process]), bool(graph.free_roots))


def _lost_finding(ras: Ras, process: Process, facts: RankFacts, explained: bool) -> Finding:
    rank = ras.ranks[process]
    word, captures, source = ras.lost[process]
    seen = (
        "RAS considers {} dead: unreachable over its network for a minute" if word == "dead" else "{} did not answer RAS"
    ).format(_who(ras, process))
    alive = facts.state == "alive" and not facts.stopped
    against = Evidence(f"the process of rank {rank} was found alive on its host", facts.state_source, supports=False)
    return Finding(
        ranks=(rank,),
        role=Role.CONFIRMATION if explained and not (facts.dead or facts.stopped) else Role.ROOT,
        cause=_lost_cause(word, dead=facts.dead, stopped=facts.stopped, alive=alive),
        stage=StageRef(component=Component.HOST),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.SUSPECT,
        evidence=(
            Evidence(f"{seen} ({captures} of {evidence_text.counted(ras.captures, 'capture')})", source),
            *([against] if alive else ()),
        ),
        next_steps=(f"find the process of {_who(ras, process)}: exit code, kernel log, network of its host",),
    )


def _lost_cause(word: str, *, dead: bool, stopped: bool, alive: bool) -> Cause:
    """The cause another witness tells; RAS alone tells death only, and not against a process that was seen alive."""
    if dead or stopped:
        return Cause.PROCESS_DEAD if dead else Cause.PROCESS_STOPPED
    return Cause.PROCESS_DEAD if word == "dead" and not alive else Cause.UNKNOWN


def _elsewhere(ras: Ras, group: RasGroup, member: RasMember) -> Iterator[Finding]:
    """One rank launched another kind than the others: they are in different operations."""
    process = member.process
    if process is None or process not in ras.ranks or member.moved:
        return
    rank = ras.ranks[process]
    own = ", ".join(
        f"up to {kind} {count} (its peers {group.usual[kind]})"
        for kind, count in member.counts.items()
        if count != group.usual[kind]
    )
    yield Finding(
        ranks=(rank,),
        cause=Cause.COLLECTIVE_MISMATCH,
        stage=StageRef(component=Component.COMMUNICATION, communicator=group.communicator),
        belief=Belief.GROUP_SYMPTOM,
        confidence=Confidence.SUSPECT,
        evidence=(Evidence(f"rank {rank} launched {own} of communicator {group.communicator}", member.source),),
        next_steps=(
            f"compare the code that {_who(ras, process)} ran with its peers'; a Flight Recorder dump shows both calls",
        ),
    )


def _clears() -> str | None:
    """Equal counts rule nothing out: RAS counts what was launched, not what completed."""
    return None


RULE = Rule(
    code="FX153",
    name="behind-in-ras",
    seed="Flight Recorder practice",
    needs=(Need(Ras, "ras", "only a report of NCCL RAS has these counts"),),
    thresholds=(
        Threshold(
            "settled_gap_s",
            60.0,
            "RAS has no time of its own: ranks that differ for less than the longest usual step are no sign of a hang",
        ),
    ),
    concludes="The rank whose count of collectives stays below its peers' and that waits in no other one; a lost process.",
    evaluate=_evaluate,
    clears=_clears,
)
