"""The frontier of a case: every window's exact accounting beside our attribution of the group's lost time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from forensics.rules.reductions.frontier_accounting import Floats
from forensics.rules.reductions.frontier_culprits import Attribution, attribute
from forensics.rules.reductions.frontier_cut import Cut, cut
from forensics.rules.reductions.frontier_gates import Gates
from forensics.rules.reductions.frontier_labels import Examined, examine
from forensics.rules.reductions.frontier_matrix import StageMatrix


@dataclass(frozen=True, slots=True, eq=False)
class FrontierWindow:
    """One window as it was recorded.

    `waits` is time in ns spent waiting inside collectives, `[step, rank]`, and the stage they are in; None when not known.
    """

    matrix: StageMatrix
    waits: tuple[Floats, int] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class WindowVerdict:
    """Both readings of a window: the identity with its labels, and the attribution."""

    matrix: StageMatrix
    examined: Examined
    attribution: Attribution
    cut: Cut | None


@lru_cache(maxsize=64)
def judge(window: FrontierWindow, gates: Gates) -> WindowVerdict:
    """Account for a window, cut it where ranks meet, and say what the time was lost to."""
    matrix = window.matrix
    found = cut(matrix, gates, window.waits)
    whole = None if isinstance(found, str) else found
    attribution = attribute(matrix, found, gates)
    reference = None
    if whole is not None and attribution.onset is not None:
        early = matrix.steps < attribution.onset
        reference = np.median(matrix.closed()[early], axis=0) if early.sum() >= gates.least_steps else None
    waits_in = whole.sync if whole is not None and whole.waiting_seen else None
    return WindowVerdict(matrix, examine(matrix, gates, waits_in, reference), attribution, whole)
