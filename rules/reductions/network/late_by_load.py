"""Whether a rank comes late to exchanges because more of them falls on it: tokens, not its node."""

from __future__ import annotations

from dataclasses import replace

from forensics.model import Cause, Confidence, Evidence, Finding
from forensics.rules.reductions.network.stragglers import Straggler
from forensics.rules.reductions.text.evidence_text import ranks_text

LEAST_LOAD = 1.3
"""Times an even share: balanced routing wavers by a tenth over many exchanges."""


def by_load(finding: Finding, late: Straggler, least: float) -> Finding:
    """A finding about a rank that comes late to exchanges in which it moves `least` times what the others do.

    Where it always did, that may be how the job is made.
    """
    return of_load(finding, late.rank, late.load, late.kind, late.source, late.had_onset) if late.load >= least else finding


def of_load(finding: Finding, rank: int, load: float, kind: str, source: str, had_onset: bool = False) -> Finding:
    """The same finding, of a `rank` that has `load` times an even share of operators of a kind."""
    share = f"rank {rank} moves {load:.2f} times an even share of each {kind} to which it comes late"
    return replace(
        finding,
        cause=Cause.EXPERT_IMBALANCE,
        confidence=finding.confidence if had_onset else Confidence.SUSPECT,
        evidence=(
            *(each for each in finding.evidence if each.supports),
            Evidence(f"{share}: what it works on before them is more, too", source),
        ),
        next_steps=(
            f"check how tokens are routed to the experts of {ranks_text(finding.ranks)}: capacity factor, balancing loss",
            "replacing the node does not help: the load goes with the experts",
        ),
    )
