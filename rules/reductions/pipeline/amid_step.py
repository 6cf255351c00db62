"""Ranks of pipelines that stopped between two passes of a step, or amid one: there no rank does anything for all.

Where each rank has the whole model it can evaluate alone, and gradients in equal buckets do not show where a step ends.
"""

from __future__ import annotations

from typing import NewType

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.waits.graph import WaitGraph

AmidStep = NewType("AmidStep", frozenset[int])
"""Ranks that others wait for, whose last call and the one that they would make next are of passes of the same step."""


@reduction
def amid_step(graph: WaitGraph, places: CallPlaces) -> AmidStep:
    """Those of the ranks known to be missing somewhere whose record holds a whole step before."""
    missing = {rank for wait in graph.recorded for rank in wait.absent}
    places.read(missing)
    return AmidStep(frozenset(rank for rank in missing if _is_amid(rank, places)))


def _is_amid(rank: int, places: CallPlaces) -> bool:
    own, following = places.steps(rank), places.of_next(rank)
    if own is None or own.usual is None or own.ends is None or following is None:
        return False
    if not following.in_pass or following.opens:
        return False
    last = len(own.record) - 1
    made = places.pass_at(rank, last) if last >= own.begins[-1] else None
    return made is not None and made.in_pass
