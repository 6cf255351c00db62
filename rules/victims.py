"""Who waits for whom beside the suspects."""

from __future__ import annotations

from collections.abc import Iterable

from forensics.model import Anomaly, Finding, Role, Suspect, Victims
from forensics.rules.reductions.waits.graph import Wait, WaitGraph


def victims(graph: WaitGraph, suspects: tuple[Suspect, ...], findings: Iterable[Finding]) -> tuple[Victims, ...]:
    """Ranks that wait, with whom they wait for; ranks that a strong suspect names are not their own victims.

    Who was slow before others stopped the job waits for these as well.
    """
    suspects = tuple(each for each in suspects if each.anomaly is Anomaly.FAIL_STOP) or suspects
    named = {rank for s in suspects if s.members == "each" and _leads(s, suspects) for rank in s.ranks}
    camps: dict[tuple[int, ...], list[int]] = {}
    for finding in findings:
        if finding.role is Role.VICTIM:
            camps.setdefault(suspects[0].ranks, []).extend(set(finding.ranks) - named)
    for rank, whom in graph.waits_for.items():
        if rank not in named and whom:
            camps.setdefault(whom, []).append(rank)
    for wait in graph.waits:
        culprits = () if wait.missing else _mismatched(wait, suspects)
        camps.setdefault(culprits, []).extend(
            rank for rank in wait.waiting if rank not in named and not graph.waits_for.get(rank)
        )
    camps.pop((), None)
    found = [Victims(tuple(sorted(set(ranks))), whom) for whom, ranks in camps.items() if ranks]
    return tuple(sorted(found, key=lambda victims: victims.ranks))


def _mismatched(wait: Wait, suspects: tuple[Suspect, ...]) -> tuple[int, ...]:
    """Ranks that a leading suspect names for a mismatch in this communicator: everyone entered, they entered something else."""
    for suspect in suspects:
        if suspect.members == "each" and suspect.stage.communicator == wait.communicator and _leads(suspect, suspects):
            return suspect.ranks
    return ()


def _leads(suspect: Suspect, suspects: tuple[Suspect, ...]) -> bool:
    return next(s for s in suspects if s.fault == suspect.fault) is suspect
