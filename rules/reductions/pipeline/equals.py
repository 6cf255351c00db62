"""Whether a late rank did the same work at the same time as the ranks that it was late to."""

from __future__ import annotations

from collections.abc import Collection

from forensics.rules.reductions.arrivals.lateness import Lateness
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.stacks.rounds import AloneAtWork


def is_of_equals(late: Lateness, layout: Layout) -> bool:
    """Whether it is late by exact times among members that do the same work at the same time: a tensor-parallel group."""
    known = layout.axes.get(late.communicator)
    return known is not None and known.axis is Axis.TENSOR and late.on_own_clocks and not late.is_bound


def is_of_stages(late: Lateness, layout: Layout) -> bool:
    """Whether the other members are of other pipeline stages, whose passes end earlier or later by the schedule.

    So it is in groups of embeddings, and wherever the stages of the members are known and none is that of the late rank.
    """
    known = layout.axes.get(late.communicator)
    if known is not None and known.axis is Axis.EMBEDDING:
        return True
    placed = {rank: layout.places[rank].stage for rank in late.members if rank in layout.places}
    stages = [stage for stage in placed.values() if stage is not None]
    own = placed.get(late.rank)
    return own is not None and len(stages) > 1 and stages.count(own) == 1


def may_wait_for(late: Lateness, layout: Layout, messengers: Collection[int], ranks: Collection[int]) -> frozenset[int]:
    """Ranks for whose messages, which no recorder keeps, a late rank may have waited: those of its pipeline, else all `ranks`.

    `messengers` are ranks that exchange such messages. None where it is late in a tensor group: its members get theirs at once.
    """
    known = layout.axes.get(late.communicator)
    if not messengers or (known is not None and known.axis is Axis.TENSOR) or late.within is not None:
        return frozenset()
    own = layout.places.get(late.rank)
    if own is None or own.replica is None:
        return frozenset(ranks) - {late.rank}
    return frozenset(rank for rank, place in layout.places.items() if place.replica == own.replica) - {late.rank}


def came_after_all(late: Lateness, ranks: Collection[int], least_jump: float) -> bool:
    """Whether all other `ranks` had come to each late call, on hosts that wait in it, so that none still had a message to send.

    The first stage of a pipeline ends each step with work of its own: it must have come `least_jump` times as late as before.
    """
    return not late.on_own_clocks and {*late.members} >= {*ranks} and late.jumped >= least_jump


def unseen_waits(
    late: Lateness, layout: Layout, messengers: Collection[int], ranks: Collection[int], alone: AloneAtWork | None, jump: float
) -> frozenset[int]:
    """The same, but none where all others had come already, or where stacks show it at work while they wait."""
    is_last = came_after_all(late, ranks, jump) or is_alone(late, alone)
    return frozenset() if is_last else may_wait_for(late, layout, messengers, ranks)


def is_alone(late: Lateness, alone: AloneAtWork | None) -> bool:
    """Whether stacks show this rank at work in rounds in which all others wait: it waits for none of them."""
    return alone is not None and alone.rank == late.rank
