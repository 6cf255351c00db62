"""That the job is sound is a hypothesis too: it needs motion, and a look at speed that found nothing."""

from __future__ import annotations

from collections.abc import Sequence

from forensics.model import Assessment, StageName, Symptom, SymptomKind
from forensics.rules.reductions.progress.liveness import Liveness
from forensics.rules.reductions.progress.speed import Pace, Speed

_SHOWN = 6


def sound(motion: Liveness, speed: Speed, symptoms: Sequence[Symptom]) -> Assessment:
    """Assess it: it explains no symptom, and is withheld where motion is not shown or speed was not measured."""
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
        withheld=_withheld(motion, speed),
    )


def _withheld(motion: Liveness, speed: Speed) -> str | None:
    moves = motion.progress or motion.reason
    if not motion.shown:
        return f"nothing shows that the job moves: {motion.reason}"
    if speed.pace is Pace.SLOWER:
        return f"it moves, slower than before: {speed.reason}"
    if not speed.was_measured:
        return f"it moves ({moves}); speed not measured: {speed.reason}"
    return None
