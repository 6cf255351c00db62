"""The first three lines: what happened to whom, who waits since when, and why we say so."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.bundle.members import ARCHIVE_CUT
from forensics.model import Anomaly, CoverageRow, Granularity, GroupRow, Outcome, StageRef, Suspect, Verdict, Victims
from forensics.report import ranks, suspects, times
from forensics.report.plain import brief
from forensics.vocabulary import MOVES, ONLY_IF

_WORD = {
    Outcome.HANG: "HANG",
    Outcome.SLOWDOWN: "SLOWDOWN",
    Outcome.FAILSTOP: "FAILSTOP",
    Outcome.HEALTHY: "HEALTHY",
    Outcome.INCONCLUSIVE: "INCONCLUSIVE",
}
# The statement stands in full under EVIDENCE; the head is read on a terminal.
LONGEST_REASON = 300
_NAME = 60
# Of kinds of evidence: the whole list stands under COVERAGE.
_KINDS = 4
# Members of a group wait for each other.
_NO_WAITERS = {False: "no waiting ranks identified", True: "nobody outside this group is known to wait"}
_NOBODY = {
    Outcome.HEALTHY: "the job was moving; nobody is accused",
    Outcome.SLOWDOWN: "the whole job is slower than before; nobody is accused",
    Outcome.INCONCLUSIVE: "insufficient evidence to name a suspect   confidence: none",
}


def word(verdict: Verdict) -> str:
    """The outcome as the first word of a report."""
    return _WORD[verdict.outcome]


def lines(verdict: Verdict) -> tuple[str, ...]:
    """Three lines; then whether there are independent faults beside the first."""
    first = verdict.suspects[0] if verdict.suspects else None
    if first is None:
        return _nobody(verdict), _looked_at(verdict) + _cut(verdict), _reason(verdict, first)
    only_if = ONLY_IF[first.anomaly] if verdict.outcome is Outcome.INCONCLUSIVE else ""
    found = only_if + suspects.verdict_line(first), _waiting(verdict, first) + _cut(verdict), _reason(verdict, first)
    return *found, *_others(verdict, first)


def _nobody(verdict: Verdict) -> str:
    if verdict.outcome is Outcome.INCONCLUSIVE and MOVES in verdict.summary:
        return "the job is progressing; nobody is accused   confidence: none"
    return _NOBODY.get(verdict.outcome, "nobody can be named   confidence: none")


def _waiting(verdict: Verdict, first: Suspect) -> str:
    since = f"since {times.short(verdict.since)}" if verdict.since else "start time unknown"
    victims = next((v for v in verdict.victims if set(v.waits_for) & set(first.ranks)), None)
    victims = victims or next(iter(verdict.victims), None)
    if victims is None or _is_over(verdict, first):
        return f"{suspects.cost(first.impact) or _NO_WAITERS[first.granularity is Granularity.GROUP]}; {since}"
    whom = "" if set(victims.waits_for) <= set(first.ranks) else f" for {ranks.phrase(victims.waits_for, most=4)}"
    between = " " if verdict.since else "; "
    who = f"{_who(victims, verdict.world_size)}{whom}{_operation(verdict, first, victims)}"
    return f"{who}{_behind(verdict, first, victims)}{between}{since}"


def _behind(verdict: Verdict, first: Suspect, victims: Victims) -> str:
    """How many more wait for those who wait for the suspect."""
    held = {*first.ranks, *victims.ranks}
    while more := {rank for row in verdict.victims if held & set(row.waits_for) for rank in row.ranks} - held:
        held |= more
    count = len(held) - len({*first.ranks, *victims.ranks})
    return f", {count} more behind {'it' if len(set(victims.ranks)) == 1 else 'them'}" if count else ""


def _is_over(verdict: Verdict, first: Suspect) -> bool:
    """Whether the call that a slow suspect held up has ended: who waits at the capture waits in another one."""
    numbers = {row.sequence for row in verdict.groups if row.communicator == first.stage.communicator}
    return first.anomaly is Anomaly.FAIL_SLOW and first.stage.sequence is not None and first.stage.sequence not in numbers


def _cut(verdict: Verdict) -> str:
    """That an archive ends early: what it lacks is not there to be judged."""
    cut = next((item for item in verdict.warnings if item.statement.startswith(ARCHIVE_CUT)), None)
    if cut is None:
        return ""
    name = brief((cut.source or "the input").partition("#")[0], _NAME)
    return f"; ARCHIVE CUT: {name} ends early, evidence is incomplete"


def _who(victims: Victims, world_size: int | None) -> str:
    count = len(set(victims.ranks))
    of = f" of {world_size}" if world_size else ""
    return f"{ranks.phrase(victims.ranks, most=4)} ({count}{of}) {'waits' if count == 1 else 'wait'}"


def _operation(verdict: Verdict, first: Suspect, victims: Victims) -> str:
    """The operation that is waited in: one the suspect has not joined, else one its waiters have joined, else of its stage."""
    absent, joined = _rows(verdict, set(victims.ranks), set(first.ranks)), _rows(verdict, set(victims.ranks), set())
    named = [row for row in (*absent, *joined) if row.communicator == first.stage.communicator]
    where: GroupRow | StageRef = next(iter(named or absent or joined), first.stage)
    if where.operation is None:
        return ""
    sequence = "" if where.sequence is None else f" seq {where.sequence}"
    communicator = f" of {where.communicator}" if where.communicator else ""
    return f" in {where.operation}{sequence}{communicator}"


def _rows(verdict: Verdict, waiting: set[int], without: set[int]) -> list[GroupRow]:
    """Operations that some of `waiting` have joined, and where it is not empty some of `without` have not."""
    rows = [row for row in verdict.groups if row.operation and waiting & set(row.joined)]
    return [row for row in rows if not without or without & set(row.missing)]


def _reason(verdict: Verdict, first: Suspect | None) -> str:
    """The strongest statement about the suspect; without a suspect where to begin, else why there is none."""
    if first is None and verdict.leads:
        return brief(f"begin with {verdict.leads[0]}", LONGEST_REASON)
    statements = [item.statement for item in first.evidence if item.supports] if first else []
    labels = [label.reason for label in verdict.labels]
    reason = next((text for text in (*statements, verdict.summary, *labels) if text), "no reason was recorded")
    return brief(reason, LONGEST_REASON)


def _others(verdict: Verdict, first: Suspect) -> Iterator[str]:
    faults = {suspect.fault for suspect in verdict.suspects} - {first.fault}
    if faults:
        numbers = ", ".join(str(fault) for fault in sorted(faults))
        yield f"independent of it: fault {numbers}, below"


def _looked_at(verdict: Verdict) -> str:
    """What the absence of an accusation rests on, and what it does not."""
    if not verdict.coverage:
        return "the evidence does not say what was collected"
    gaps = [row for row in verdict.coverage if row.absent or row.partial]
    whole = [row for row in verdict.coverage if row.present and row not in gaps]
    none = [row.kind for row in verdict.coverage if row not in gaps and row not in whole]
    said = [f"complete: {_counts(whole)}" if whole else "", f"INCOMPLETE: {_counts(gaps)}" if gaps else ""]
    said += [f"none: {', '.join(none)}" if none else ""]
    missed = [f"not checked: {len(verdict.not_checked)} (see COVERAGE)" if verdict.not_checked else ""]
    return "; ".join(part for part in said + missed if part)


def _counts(rows: list[CoverageRow]) -> str:
    listed = [f"{row.kind} {len(row.present)}/{len(row.present) + len(row.partial) + len(row.absent)}" for row in rows[:_KINDS]]
    return ", ".join(listed) + (f" (+{len(rows) - _KINDS} more)" if len(rows) > _KINDS else "")
