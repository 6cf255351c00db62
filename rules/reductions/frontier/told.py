"""What windows of stages tell of one rank: the stage that it is long in."""

from __future__ import annotations

from collections.abc import Iterable

from forensics.model import StageName
from forensics.rules.reductions.frontier.culprits import Culprit
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.roles import roles_differ
from forensics.rules.reductions.frontier.verdicts import FrontierWindow, WindowVerdict, judge

# Of the wall time: stages that overlap by more were nested or counted twice, and tell no loss.
_MOST_OVERLAP = 0.1


def long_stage_of(rank: int, windows: Iterable[FrontierWindow]) -> Culprit | None:
    """The stage that the job loses most time to by this rank alone; None where its stages are as long as those of its peers.

    The stage in which all wait for each other, and for their devices, tells nothing.
    """
    gates = Gates()
    told = [judged for window in windows if not is_limited(judged := judge(window, gates), gates)]
    found = [
        each
        for judged in told
        for each in judged.attribution.culprits
        if each.ranks == (rank,) and each.stage in set(StageName) and each.stage != judged.attribution.sync
    ]
    return max(found, key=lambda culprit: culprit.share, default=None)


def is_limited(judged: WindowVerdict, gates: Gates) -> bool:
    """Whether the window cannot bear an accusation: ranks of different parts, stages out of order or counted twice."""
    mixed = judged.attribution.sync is None or roles_differ(judged.matrix, gates, judged.attribution.sync)
    return bool(mixed) or not judged.matrix.is_ordered or judged.examined.overlap > _MOST_OVERLAP
