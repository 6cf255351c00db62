"""How many chunks of the model the stages of a pipeline hold, and which ranks work on the same passes."""

from __future__ import annotations

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.pipeline.own_steps import OwnSteps
from forensics.rules.reductions.pipeline.passes import BACKWARD, FORWARD, NEITHER

_MEMBERS = (
    "SELECT DISTINCT rank FROM members WHERE list_contains(?, communicator) AND rank NOT IN (-1, ?) ORDER BY rank LIMIT ?"
)
# Ranks that are asked for their pipeline: those of a node.
_MOST_SHARERS = 8


def shape_by_first(first: OwnSteps, last: int | None) -> tuple[int, int]:
    """Stages of a pipeline, and chunks that each holds, by its first stage (0, 1: not known, or one); `last` is the last stage.

    The first stage passes every chunk on, and gets each but the first from the last stage.
    """
    if first.usual is None or first.passes is None:
        return 0, 1
    step = slice(*first.usual)
    forward = (first.passes.direction[step] == FORWARD) & first.record.is_message[step]
    passed_on, again = (int((forward & (first.record.is_send[step] == sends)).sum()) for sends in (True, False))
    microbatches = passed_on - again
    return (last + 1, passed_on // microbatches) if last is not None and again and microbatches > 0 else (0, 1)


def seems_interleaved(own: OwnSteps) -> bool:
    """Whether a stage works forward more often, before it first works back, than a pipeline of one chunk needs to fill.

    As many forward passes as the pipeline has stages fill it (1F1B). Where all of them come first nothing shows.
    """
    if own.usual is None or own.passes is None:
        return False
    step = slice(*own.usual)
    directions, is_send, messages = own.passes.direction[step], own.record.is_send[step], own.record.is_message[step]
    forward, back = messages & (directions == FORWARD), messages & is_send & (directions == BACKWARD)
    before = forward[: int(back.argmax())] if back.any() else forward
    ahead = max(int((before & (is_send[: len(before)] == sends)).sum()) for sends in (True, False))
    stages = int(own.record.members[step][messages].min(initial=len(directions)))
    return stages < ahead < own.passes.per_step


def sharers(connection: DuckDBPyConnection, own: OwnSteps) -> list[int]:
    """Some other members of the groups that a rank of a pipeline calls within its passes: they are in the same stage."""
    if own.passes is None or own.ends is None:
        return []
    inside = ~own.record.is_message & (own.passes.direction != NEITHER) & (own.passes.ordinal >= 0)
    labels = [own.record.names.communicators[number] for number in np.unique(own.record.communicator[inside]).tolist()]
    rows = connection.execute(_MEMBERS, [labels, own.record.rank, _MOST_SHARERS]).fetchall()
    return [rank for (rank,) in rows]
