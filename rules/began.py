"""Since when the job goes wrong, by completions of sampled ranks, where no finding dates its fault."""

from __future__ import annotations

from dataclasses import replace

from forensics.model import Anomaly, Suspect
from forensics.rules.reductions.network.went_wrong import JobOnset, Onset, Trigger


def dated(suspects: tuple[Suspect, ...], onset: JobOnset) -> tuple[Suspect, ...]:
    """The suspects, those of the first fault with the onset of the job; further faults began at times of their own.

    A halt dates what stopped, a slowdown what is slow. The first suspect carries the evidence.
    """
    first = onset.first
    if first is None or not suspects:
        return suspects
    fault = suspects[0].fault
    return tuple(
        _dated(suspect, first, number == 0) if suspect.fault == fault and _is_of(suspect, first) else suspect
        for number, suspect in enumerate(suspects)
    )


def _is_of(suspect: Suspect, onset: Onset) -> bool:
    return (suspect.anomaly is Anomaly.FAIL_SLOW) == (onset.trigger is not Trigger.NO_COMPLETION)


def _dated(suspect: Suspect, onset: Onset, leads: bool) -> Suspect:
    """Right behind what the suspect is named for: the report shows the first lines of the evidence."""
    rest = (onset.evidence, *suspect.evidence[1:]) if leads else suspect.evidence[1:]
    return replace(suspect, since=suspect.since or onset.since, evidence=(*suspect.evidence[:1], *rest))
