"""What a rank loses to slow links of its own, or to those by which others that work in step with it get their data."""

from __future__ import annotations

from forensics.rules.reductions.network.slowness import Slowness
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.layout import Layout


def lost_to_links(slowness: Slowness, layout: Layout) -> dict[int, float]:
    """By rank, the largest share of the time that a slow link loses that it waits for.

    Its device comes late to other calls while its own transfers last. All of a tensor-parallel group wait for the member whose
    data is late, and come late together to whatever they do with others; other stages of their pipelines wait for messages.
    """
    groups = [layout.members[label] for label in layout.along(Axis.TENSOR)]
    pipelines = [layout.members[label] for label in layout.along(Axis.PIPELINE)]
    found: dict[int, float] = {}
    for (sender, receiver), channel in slowness.slow_links().items():
        waiting = {sender, receiver, *(rank for group in groups if receiver in group for rank in group)}
        behind = (rank for pipeline in pipelines if waiting.intersection(pipeline) for rank in pipeline)
        for rank in waiting.union(behind):
            found[rank] = max(found.get(rank, 0.0), channel.share)
    return found
