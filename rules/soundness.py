"""That the job is sound is a hypothesis too: it needs motion, and a look at speed that found nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NewType

from forensics.model import Assessment, StageName, Symptom, SymptomKind
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.logs.finished import Finished
from forensics.rules.reductions.progress.liveness import Liveness
from forensics.rules.reductions.progress.speed import Pace, Speed
from forensics.rules.reductions.ranks.roster import RecordedRanks, Roster
from forensics.rules.reductions.text.evidence_text import ranks_text

_SHOWN = 6


UnrecordedRanks = NewType("UnrecordedRanks", frozenset[int])
"""Ranks of the job of which neither steps nor calls are known."""


def unrecorded_ranks(roster: Roster, recorded: RecordedRanks, windows: FrontierWindows) -> UnrecordedRanks:
    """Ranks whose own speed nothing tells: one that was slow before the record began delays the others without a trace."""
    return UnrecordedRanks(frozenset(roster.ranks) - recorded - {rank for window in windows for rank in window.matrix.ranks})


def sound(
    motion: Liveness, speed: Speed, symptoms: Sequence[Symptom], unrecorded: UnrecordedRanks, end: Finished
) -> Assessment:
    """Assess it: it explains no symptom, and is withheld where motion is not shown or the speed of some rank not known.

    A job that trained to its end neither hung nor fails; how fast it was only its steps tell.
    """
    against = [symptom.text for symptom in symptoms if symptom.kind is not SymptomKind.ABSENT]
    return Assessment(
        ranks=(),
        cause=None,
        stage=StageName.UNKNOWN,
        confidence=None,
        rules=("FX190",),
        explains=0,
        leaves=sum(len(symptom.ranks) for symptom in symptoms),
        contradicted_by=tuple(against[:_SHOWN]),
        withheld=_withheld(motion, speed, unrecorded, end),
    )


def _withheld(motion: Liveness, speed: Speed, unrecorded: UnrecordedRanks, end: Finished) -> str | None:
    moves = motion.progress or motion.reason
    if end.text is not None:
        return f"it finished, slower than before: {speed.reason}" if speed.pace is Pace.SLOWER else None
    if not motion.shown:
        return f"nothing shows that the job moves: {motion.reason}"
    if speed.pace is Pace.SLOWER:
        return f"it moves, slower than before: {speed.reason}"
    if not speed.was_measured:
        return f"it moves ({moves}); speed not measured: {speed.reason}"
    if unrecorded:
        return f"it moves ({moves}); no record of {ranks_text(unrecorded)}, whose speed is not known"
    return None
