"""A library that knows all members reported who did not come to an operation that the others wait in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from forensics.model import (
    Belief,
    Cause,
    Component,
    Confidence,
    Evidence,
    Finding,
    Granularity,
    Mechanism,
    StageRef,
)
from forensics.rules.interface import Need, Rule
from forensics.rules.reductions.calls.positions import Communicator
from forensics.rules.reductions.logs.events import LogEvents, Logs
from forensics.rules.reductions.logs.log_evidence import Logged
from forensics.rules.reductions.logs.reports import BY_RANKS, COUNTED, GAVE_UP, ONE_OPERATION
from forensics.rules.reductions.mismatch.refused_sizes import raised_at
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.text.evidence_text import ranks_text, wait_text
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.reductions.waits.combined_positions import Positions
from forensics.rules.reductions.waits.graph import Root, RootKind, Wait, WaitGraph

_SHOWN = 3
_SPOKEN = "no library reports it: the others say that they wait, and have written lines that it has not"
_GAVE_UP = "no library reports it: a rank that was ended a moment before it gave up in the same call leaves the same evidence"


def _evaluate(roster: Roster, graph: WaitGraph, placed: Positions, logs: LogEvents) -> Iterator[Finding]:
    """Ranks that nobody heard of and that others wait for, else the few that wait in something of their own."""
    waits = [wait for wait in graph.waits if wait.overdue]
    missing = tuple(root.ranks[0] for root in graph.reported_roots if _is_missing(roster, root))
    waiting = {rank for wait in waits for rank in wait.waiting} - set(missing)
    nameless = any(wait.nameless[0] for wait in waits)
    # One that waits alone for all the others may as well have made a call too many.
    if missing and len(missing) <= max(len(waiting), int(nameless)):
        for rank in missing:
            yield _absent(rank, waits, placed, sure=len(missing) < len(waiting))
    elif not missing:
        for root in graph.reported_roots:
            yield from (_staged(found, logs) for found in _minority(root, placed))


def _is_missing(roster: Roster, root: Root) -> bool:
    rank = root.ranks[0]
    known = any(wait.overdue and rank in wait.absent for wait in root.waits)
    # Where its end was seen that is the fault, and not its absence.
    return root.kind is RootKind.FREE and known and not roster.rank(rank).ended


def _absent(rank: int, waits: list[Wait], placed: Positions, sure: bool) -> Finding:
    lacking = [wait for wait in waits if rank in wait.absent]
    units = {placed.of(wait.communicator).unit for wait in lacking}
    is_reported = not units <= BY_RANKS
    statements = [Evidence(_said(rank, wait, placed), _source(wait)) for wait in lacking[:_SHOWN]]
    if not is_reported:
        statements.append(Evidence(_GAVE_UP if units == {GAVE_UP} else _SPOKEN, supports=False))
    is_sure = sure and is_reported
    found = _finding((rank,), Cause.HOST_STALL, Component.HOST, "not_started", lacking[0], tuple(statements), is_sure)
    is_counted = placed.of(lacking[0].communicator).unit not in ONE_OPERATION
    return found if is_counted else replace(found, stage=replace(found.stage, sequence=None))


def _said(rank: int, wait: Wait, placed: Positions) -> str:
    whom = ranks_text(wait.waiting) if wait.waiting else "other ranks"
    verb = "waits" if len(wait.waiting) == 1 else "wait"
    # A report is of one operation: only a desync report has numbers of calls.
    unit = placed.of(wait.communicator).unit
    is_counted = unit not in ONE_OPERATION
    what = (
        wait_text(wait)
        if is_counted or not wait.communicator
        else f"{_kinds(wait)} of {wait.communicator}".removeprefix(" of ")
    )
    if unit == GAVE_UP:
        return f"{whom} gave up waiting in {_call(wait)}; rank {rank} gave up on nothing"
    return f"rank {rank} is reported missing in {what}, in which {whom} {verb}"


def _kinds(wait: Wait) -> str:
    return "/".join(sorted({call.kind for call in wait.waiting.values() if call}))


def _call(wait: Wait) -> str:
    return f"{_kinds(wait)} at {wait.communicator}"


def _source(wait: Wait) -> str | None:
    return next((call.source for _, call in sorted(wait.waiting.items()) if call), None)


def _minority(root: Root, placed: Positions) -> Iterator[Finding]:
    """Those who wait for the others in an operation of their own, or did not finish what most finished."""
    waits = [wait for wait in root.waits if wait.overdue]
    if not waits or len(waits) < len(root.waits):
        return
    if root.kind is RootKind.CYCLE:
        all_ranks = {rank for wait in waits for rank in wait.waiting}
        for wait in waits:
            if 0 < 2 * len(wait.waiting) < len(all_ranks) and (
                all_ranks - set(wait.waiting) == set(wait.absent) or _is_alone(wait, waits)
            ):
                yield _apart(wait, placed)
                return
    else:
        first = min(waits, key=lambda wait: wait.sequence)
        group = placed.of(first.communicator)
        lagging, done = tuple(first.waiting), group.finished(first.sequence)
        if group.unit == COUNTED and 0 < len(lagging) < len(done):
            yield _unfinished(lagging, done, first, group)


def _staged(found: Finding, logs: LogEvents) -> Finding:
    """The finding with the stage in which the rank gave up, by its traceback."""
    place = raised_at(logs.by_rank.get(found.ranks[0], ())) if len(found.ranks) == 1 else None
    return replace(found, stage=replace(found.stage, name=place.stage)) if place is not None else found


def _is_alone(wait: Wait, waits: Sequence[Wait]) -> bool:
    """Whether most of its group did not come because they wait, with others, in what nobody but its ranks is missing in."""
    others = [other for other in waits if other is not wait and set(other.missing) <= set(wait.waiting)]
    elsewhere = {rank for other in others for rank in other.waiting}
    return len(wait.waiting) < len(wait.absent) and set(wait.absent) < elsewhere


def _apart(wait: Wait, placed: Positions) -> Finding:
    ranks = tuple(sorted(wait.waiting))
    said = f"{ranks_text(ranks)} submitted {wait_text(wait)}, {ranks_text(wait.absent)} did not and wait in others"
    if placed.of(wait.communicator).unit == GAVE_UP:
        said = f"{ranks_text(ranks)} gave up waiting in {_call(wait)}, {ranks_text(wait.absent)} in another call"
    finding = (Evidence(said, _source(wait)),)
    return _finding(ranks, Cause.COLLECTIVE_MISMATCH, Component.HOST, "not_started", wait, finding, sure=False)


def _unfinished(lagging: tuple[int, ...], done: tuple[int, ...], wait: Wait, group: Communicator) -> Finding:
    said = f"{ranks_text(lagging)} joined {wait_text(wait)} and did not finish it; {ranks_text(done)} did"
    source = group.positions[lagging[0]].source
    return _finding(lagging, Cause.COMPUTE_HANG, Component.COMPUTE, "late_end", wait, (Evidence(said, source),), sure=False)


def _finding(
    ranks: tuple[int, ...],
    cause: Cause,
    component: Component,
    state: str,
    wait: Wait,
    evidence: tuple[Evidence, ...],
    sure: bool,
) -> Finding:
    kinds = sorted({call.kind for call in wait.waiting.values() if call is not None} - {"operation"})
    return Finding(
        ranks=ranks,
        cause=cause,
        stage=StageRef(
            component=component,
            operation=kinds[0] if len(kinds) == 1 else None,
            communicator=wait.communicator,
            sequence=wait.sequence,
        ),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY if sure else Confidence.SUSPECT,
        evidence=evidence,
        granularity=Granularity.of_ranks(ranks),
        mechanism=Mechanism(state, "local"),
        next_steps=(
            f"read the end of the log of {ranks_text(ranks)} and take its stack: the report says that it did not come, not why",
        ),
    )


def _clears(graph: WaitGraph, logged: Logged, seen: Seen) -> str | None:
    heard = {rank for report in logged.reports for rank in report.positions}
    if not logged.reports or not seen.all_in(heard) or any(wait.overdue and wait.missing for wait in graph.waits):
        return None
    return "the reports in the logs name no member that is missing"


RULE = Rule(
    code="FX154",
    name="reported-missing",
    seed="Flight Recorder practice",
    needs=(Need(Logs, "logs", "Horovod, barriers and watchdogs report it in the log"),),
    concludes="The ranks that a report of Horovod, of a barrier, of a desync check or of an analyzer says did not come.",
    evaluate=_evaluate,
    clears=_clears,
)
