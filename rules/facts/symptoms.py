"""What the case shows that a sound job would not show, or not for so long: pending waits, deaths, silence, errors, lateness."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NewType

from forensics.model import Anomaly, Finding, Members, Symptom, SymptomKind
from forensics.rules.reductions.logs.events import LogEvents
from forensics.rules.reductions.progress.standstill import Standing, WaitState, WaitStates
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.text.evidence_text import ranks_text, wait_text
from forensics.rules.reductions.waits.graph import Wait, WaitGraph

# Kinds of log events that end or break a process by themselves; a timeout only says that it waited.
FAILURES = ("exception", "fatal_error", "worker_exit", "size_mismatch")

Findings = NewType("Findings", tuple[Finding, ...])
"""What all rules found in a case."""


@dataclass(frozen=True, slots=True)
class Symptoms:
    """All symptoms of a case; `of_wait` gives the place in `found` of each wait of the graph that is a symptom.

    `still` are the waits that are proven to stand still.
    """

    found: tuple[Symptom, ...]
    of_wait: Mapping[int, int]
    still: frozenset[int]

    @property
    def waits(self) -> frozenset[tuple[int, int]]:
        """Each wait with each rank that is in it."""
        return frozenset((place, rank) for place in self.of_wait.values() for rank in self.found[place].ranks)

    @property
    def count(self) -> int:
        """Each symptom counts once for every rank that shows it."""
        return sum(len(symptom.ranks) for symptom in self.found)


def symptoms(graph: WaitGraph, states: WaitStates, roster: Roster, logs: LogEvents, findings: Findings) -> Symptoms:
    """Collect them in the order waits, processes, logs, lateness."""
    waits = [
        (index, wait) for index, wait in enumerate(graph.waits) if states[index].standing in (Standing.STILL, Standing.UNKNOWN)
    ]
    found = [_waiting(wait, states[index]) for index, wait in waits]
    found += [*_absent([wait for _, wait in waits], graph, roster), *_processes(roster), *_failures(logs), *_late(findings)]
    still = frozenset(index for index, _ in waits if states[index].standing is Standing.STILL)
    return Symptoms(tuple(found), {index: place for place, (index, _) in enumerate(waits)}, still)


def _waiting(wait: Wait, state: WaitState) -> Symptom:
    who = tuple(sorted(wait.waiting))
    source = next((call.source for _, call in sorted(wait.waiting.items()) if call), None)
    verb = "waits" if len(who) == 1 else "wait"
    named = ranks_text(who) if who else "ranks that are not named"
    return Symptom(SymptomKind.WAITS, who, f"{named} {verb} in {wait_text(wait)}: {state.reason}", source)


def _absent(waits: Sequence[Wait], graph: WaitGraph, roster: Roster) -> Iterator[Symptom]:
    """Ranks that others wait for and that wait for nobody: that one is elsewhere does not explain that another one is."""
    missing = {rank: wait for wait in reversed(waits) for rank in wait.missing if rank not in graph.waits_for}
    for rank, wait in sorted(missing.items()):
        if rank in roster.ranks and roster.ranks[rank].unseen:
            yield Symptom(SymptomKind.SILENT, (rank,), f"rank {rank} left neither dump nor stack, and others wait for it")
        else:
            yield Symptom(SymptomKind.ABSENT, (rank,), f"rank {rank} has not entered {wait_text(wait)}")


def _processes(roster: Roster) -> Iterator[Symptom]:
    for rank, facts in roster.ranks.items():
        if facts.ended:
            yield Symptom(SymptomKind.ENDED, (rank,), f"the process of rank {rank} has ended", facts.state_source)
        elif facts.stopped:
            yield Symptom(SymptomKind.STOPPED, (rank,), f"the process of rank {rank} is stopped", facts.process_source)
        elif facts.heartbeat_gap_ns:
            gap = f"{facts.heartbeat_gap_ns / 1e9:.0f} s"
            yield Symptom(SymptomKind.SILENT, (rank,), f"rank {rank} gave no sign of life for {gap}")


def _failures(logs: LogEvents) -> Iterator[Symptom]:
    for rank, events in logs.by_rank.items():
        first = next((event for event in events if event.kind in FAILURES), None)
        if first is not None:
            yield Symptom(SymptomKind.FAILED, (rank,), f"rank {rank} reported: {first.text}", first.source)


def _late(findings: Findings) -> Iterator[Symptom]:
    """What steps lost to somebody, as the rules that measure it say: one symptom for each set of ranks."""
    slow = {finding.ranks: finding for finding in findings if finding.anomaly is Anomaly.FAIL_SLOW and finding.evidence}
    for ranks, finding in sorted(slow.items()):
        first = finding.evidence[0]
        named = ranks if finding.members is Members.EACH else ranks[:1]
        yield Symptom(SymptomKind.LATE, named, first.statement, first.source)
