"""Ranks of which one is late, or all are longer, where the clocks of one GPU are held down by as much as that costs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from forensics.model import Belief, Cause, Component, Confidence, Evidence, Finding, Granularity, Members, StageName
from forensics.rank_ranges import format_ranks
from forensics.rules.reductions.hardware.causes import Hardware

_LEAST_FACTOR = 1.2
"""Times the clocks of the others: those of sound hosts differ by less."""
_ONCE = "clocks were read once: whether they were held down since steps are longer is not known"


def named_by_clocks(finding: Finding, hardware: Hardware, ranks: Collection[int]) -> Finding:
    """A finding that all ranks became longer as one about the only rank whose clocks are held down, by enough for what is lost.

    All wait for a GPU that computes so much longer than its equals; nothing was read of less than all of them.
    """
    held = [rank for rank in ranks if hardware.alone_held_down(rank, [*{*ranks} - {rank}], _LEAST_FACTOR)]
    if finding.ranks or len(held) != 1 or len(ranks) <= len(held):
        return finding
    stage = replace(finding.stage, name=StageName.UNKNOWN, substage=None, component=Component.COMPUTE)
    named = replace(
        finding, ranks=(*held,), cause=Cause.COMPUTE_SLOW, belief=Belief.BEHIND_AND_BUSY, granularity=Granularity.RANK,
        stage=stage, confidence=Confidence.SUSPECT,
    )  # fmt: skip
    found = hardware.refined(named, (Cause.COMPUTE_SLOW,))
    is_enough = found.cause is Cause.GPU_THROTTLED
    once = Evidence(_ONCE, None, supports=False)
    return replace(found, evidence=(*found.evidence, once)) if is_enough else finding


def of_held_down(finding: Finding, hardware: Hardware, slow: Collection[Cause], least_factor: float) -> Finding | None:
    """The finding as one about the only rank whose clocks are held down by this factor; None where they do not account for it.

    What no reading shows of the others accuses them of nothing: the clocks are all that speaks for a fault.
    """
    held = [rank for rank in finding.ranks if hardware.alone_held_down(rank, (), least_factor)]
    if len(held) != 1 or hardware.refined(finding, slow).cause is not Cause.GPU_THROTTLED:
        return None
    beside = sorted({*finding.ranks} - {*held})
    alone = Evidence(
        f"ranks {format_ranks(beside)} may be late because of rank {held[0]}, whose clocks alone are known to be held down"
    )
    if not beside:
        return finding
    # The stage is that of the rank that was seen to be late, which may be another one.
    stage = replace(finding.stage, name=StageName.UNKNOWN, substage=None)
    evidence = (*finding.evidence, alone)
    return replace(finding, ranks=(*held,), members=Members.EACH, granularity=Granularity.RANK, stage=stage, evidence=evidence)
