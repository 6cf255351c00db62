"""What to look at next in a stage that costs the group time."""

from __future__ import annotations

from forensics.rules.reductions.frontier.culprits import EVERYWHERE
from forensics.rules.reductions.frontier.losses import Culprit
from forensics.rules.reductions.text.evidence_text import ranks_text


def stage_advice(culprit: Culprit) -> tuple[str, ...]:
    """Where to look, on which ranks, and in which steps."""
    if culprit.stage == EVERYWHERE:
        return ("compare load, clocks, power and file systems of the hosts before and after: no stage stands out",)
    whom = ranks_text(culprit.ranks) if culprit.ranks else "any rank"
    looks = {
        "data": "check its data workers, storage and prefetching",
        "callbacks": "check what its callbacks, logging and hooks do there",
        "checkpoint": "check where it saves to",
        "other": "annotate what it does between the stages",
    }
    when = f", at steps {culprit.pattern}" if culprit.pattern.startswith("every") else ""
    advice = looks.get(culprit.stage, "compare clocks, load and shapes with its peers")
    return (f"profile {culprit.stage} on {whom}{when}: {advice}",)
