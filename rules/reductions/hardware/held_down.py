"""Ranks of which one is late, where the clocks of a GPU among them are held down by as much as that costs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from forensics.model import Cause, Evidence, Finding, Granularity, Members, StageName
from forensics.rank_ranges import format_ranks
from forensics.rules.reductions.hardware.causes import Hardware


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
