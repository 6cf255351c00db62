"""Where each rank stands: pipeline stage, replica of the model, and place in its tensor, context and expert groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from forensics.rules.reductions.pipeline.axes import Axis


@dataclass(frozen=True, slots=True)
class Place:
    """Coordinates of a rank, None for those that nothing tells."""

    stage: int | None = None
    replica: int | None = None
    tensor: int | None = None
    context: int | None = None
    expert: int | None = None


def places(
    axes: Mapping[str, Axis], members: Mapping[str, tuple[int, ...]], pipelines: Sequence[tuple[int, ...]]
) -> Mapping[int, Place]:
    """The place of each rank of which something is known.

    Members of a group are in order of their places; a data-parallel group that holds the ranks of whole context-parallel
    ones counts these once.
    """
    within: dict[Axis, dict[int, int]] = {}
    for axis in (Axis.PIPELINE, Axis.DATA, Axis.TENSOR, Axis.CONTEXT, Axis.EXPERT):
        within[axis] = _positions([members[label] for label, known in sorted(axes.items()) if known is axis])
    if pipelines:
        within[Axis.PIPELINE] = _positions(pipelines)
    contexts = {rank: group for label, group in members.items() if axes[label] is Axis.CONTEXT for rank in group}
    within[Axis.DATA] |= _replicas([members[label] for label, known in axes.items() if known is Axis.DATA], contexts)
    ranks = sorted({rank for known in within.values() for rank in known})
    order = (Axis.PIPELINE, Axis.DATA, Axis.TENSOR, Axis.CONTEXT, Axis.EXPERT)
    return {rank: Place(*(within[axis].get(rank) for axis in order)) for rank in ranks}


def _positions(groups: Sequence[Sequence[int]]) -> dict[int, int]:
    """Place of each rank in its group; none of a rank that is at different places of several groups."""
    found: dict[int, set[int]] = {}
    for group in groups:
        for place, rank in enumerate(group):
            found.setdefault(rank, set()).add(place)
    return {rank: place.pop() for rank, place in found.items() if len(place) == 1}


def _replicas(groups: Sequence[Sequence[int]], contexts: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Replica of each rank in groups that run along data and context: ranks of one context-parallel group are of one."""
    found: dict[int, int] = {}
    for group in groups:
        inside = set(group)
        if all(inside.issuperset(contexts.get(rank, ())) for rank in group) and contexts.keys() & inside:
            firsts = [rank for rank in group if contexts.get(rank, (rank,))[0] == rank]
            found |= {rank: firsts.index(contexts[rank][0]) for rank in group if rank in contexts}
    return found
