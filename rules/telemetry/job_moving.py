"""The job still moves, or it is too early to say that it does not."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Finding
from forensics.rules.interface import Rule, Threshold
from forensics.rules.reductions.progress.liveness import SILENCE_FACTOR, Liveness, Motion, SilenceFactor


def _evaluate() -> Iterator[Finding]:
    """Accuse nobody: this rule only withholds accusations (see `forensics.rules.arbitration`)."""
    return iter(())


def _clears(liveness: Liveness) -> str | None:
    if liveness.motion is Motion.STALLED:
        return f"the job does not move: {liveness.reason}"
    return None


RULE = Rule(
    code="FX190",
    name="job-moving",
    seed="VenusTrace section 4.2",
    thresholds=(
        Threshold(
            "silence_factor",
            SILENCE_FACTOR,
            "VenusTrace calls a hang after n = 2 times the expected time; expected is a pause the job made at least twice",
            SilenceFactor,
        ),
    ),
    concludes="Outcome healthy when every recorder advanced between captures; no accusation while a silence is still usual.",
    evaluate=_evaluate,
    clears=_clears,
)
