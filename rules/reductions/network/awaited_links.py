"""What a rank that works in step with others loses to slow links by which these get their data."""

from __future__ import annotations

from forensics.rules.reductions.network.slowness import Slowness
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.layout import Layout


def lost_to_links(slowness: Slowness, layout: Layout) -> dict[int, float]:
    """By rank, the largest share of the time that a slow link loses whose receiver is in a tensor-parallel group of the rank.

    All of such a group wait for the member whose data is late, and come late together to whatever they do with others.
    """
    groups = [layout.members[label] for label in layout.along(Axis.TENSOR)]
    found: dict[int, float] = {}
    for (_, receiver), channel in slowness.slow_links().items():
        for rank in {rank for group in groups if receiver in group for rank in group}:
            found[rank] = max(found.get(rank, 0.0), channel.share)
    return found
