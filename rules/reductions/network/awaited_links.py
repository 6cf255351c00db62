"""What a rank that works in step with others loses to slow links by which these get their data."""

from __future__ import annotations

from forensics.rules.reductions.network.slowness import Slowness
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.layout import Layout


def lost_to_links(rank: int, slowness: Slowness, layout: Layout) -> float:
    """Largest share of the time that a slow link loses whose receiver is in a tensor-parallel group of the rank.

    All of such a group wait for the member whose data is late, and come late together to whatever they do with others.
    """
    groups = [layout.members[label] for label in layout.along(Axis.TENSOR) if rank in layout.members[label]]
    mates = {mate for group in groups for mate in group}
    return max((channel.share for (_, receiver), channel in slowness.slow_links().items() if receiver in mates), default=0.0)
