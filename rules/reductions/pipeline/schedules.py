"""The passes of one training iteration in the order in which each pipeline stage works on them, and what each waits for.

A pass takes one microbatch through one model chunk of a stage. Stages are places in a pipeline; with several
chunks a stage, chunk `v` of stage `s` of `P` is model stage `v * P + s`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

import numpy as np

from forensics.rules.reductions.pipeline.dag import Dag, Flags, Ints, dag


class Schedule(StrEnum):
    """Orders of passes that frameworks have.

    - `GPIPE` (Huang et al. 2019): all forwards, then all backwards, both from the first microbatch on (torch: ScheduleGPipe).
    - `ONE_F_ONE_B`: PipeDream-Flush; Megatron-LM without virtual stages.
    - `INTERLEAVED` (Narayanan et al., SC 2021, section 2.2): Megatron core 0.10 to 0.20, get_pp_rank_microbatches.
    - `INTERLEAVED_OLDER`: before core 0.10 (commit 4295be1a) all forwards came first where there were as many microbatches as
      stages; else the same.
    - `ZERO_BUBBLE`: ZB-H1 (Qi et al., ICLR 2024), as ScheduleInterleavedZeroBubble of torch with one stage a rank: the backward
      of the weights is put off by as many microbatches as the number of the stage.
    """

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"
    INTERLEAVED_OLDER = "interleaved-older"
    ZERO_BUBBLE = "zb-h1"


class Pass(IntEnum):
    """What a pass computes. `BACKWARD` is the whole of it, or the gradient of the input where `WEIGHT` is apart."""

    FORWARD = 0
    BACKWARD = 1
    WEIGHT = 2


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """The passes of one stage in order: `kind` (a `Pass`), `microbatch`, `chunk`."""

    kind: Ints
    microbatch: Ints
    chunk: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """The passes of one iteration, by node: pipeline, stage, chunk, microbatch, `kind` (a `Pass`), and place on its stage.

    Nodes are ordered by pipeline, stage and place. Edges of `dag`: each pass after the one before it on its stage; a forward
    after that of the model stage before, a backward after that of the model stage behind, and on the last model stage after
    its forward.
    """

    dag: Dag
    pipeline: Ints
    stage: Ints
    chunk: Ints
    microbatch: Ints
    kind: Ints
    place: Ints

    @property
    def is_forward(self) -> Flags:
        """Whether a node is a forward pass."""
        return np.asarray(self.kind == Pass.FORWARD)

    @property
    def is_message(self) -> Flags:
        """Whether an edge leads to another stage: its source sends what its target receives."""
        return np.asarray(self.stage[self.dag.source] != self.stage[self.dag.target])


def check(schedule: Schedule, stages: int, microbatches: int, chunks: int = 1) -> None:
    """Raise ValueError where a schedule is not made for these numbers."""
    if min(stages, microbatches, chunks) < 1:
        raise ValueError(f"{stages} stages, {microbatches} microbatches and {chunks} chunks: at least one of each is needed")
    if schedule not in (Schedule.INTERLEAVED, Schedule.INTERLEAVED_OLDER):
        if chunks > 1:
            raise ValueError(f"{chunks} chunks a stage: {schedule} has one, several are for the interleaved schedule")
    elif chunks == 1:
        raise ValueError("one chunk a stage: an interleaved schedule needs several")
    elif microbatches % stages:
        raise ValueError(
            f"{microbatches} microbatches: an interleaved schedule on {stages} stages needs a multiple of {stages}"
        )


def order(schedule: Schedule, stage: int, stages: int, microbatches: int, chunks: int = 1) -> Order:
    """Return the passes of a stage in the order in which it works on them; ValueError as `check`."""
    check(schedule, stages, microbatches, chunks)
    if not 0 <= stage < stages:
        raise ValueError(f"stage {stage} of {stages}")
    if schedule in (Schedule.INTERLEAVED, Schedule.INTERLEAVED_OLDER):
        return _interleaved(schedule, stage, stages, microbatches, chunks)
    warmup = microbatches if schedule is Schedule.GPIPE else min(stages - stage - 1, microbatches)
    kind, number = _alternating(microbatches, warmup, stage if schedule is Schedule.ZERO_BUBBLE else None)
    return Order(kind, number, np.zeros_like(number))


def graph(schedule: Schedule, stages: int, microbatches: int, chunks: int = 1, pipelines: int = 1) -> Graph:
    """Return the passes of `pipelines` equal pipelines and what each waits for; ValueError as `check`."""
    check(schedule, stages, microbatches, chunks)
    orders = [order(schedule, stage, stages, microbatches, chunks) for stage in range(stages)]
    kind, microbatch, chunk = (
        np.concatenate(columns) for columns in zip(*((o.kind, o.microbatch, o.chunk) for o in orders), strict=True)
    )
    length, size = len(orders[0].kind), len(kind)
    stage, place = np.repeat(np.arange(stages), length), np.tile(np.arange(length), stages)
    source, target = _edges(kind, microbatch, chunk * stages + stage, place)
    begin = (np.arange(pipelines) * size)[:, None]
    ordered = dag(size * pipelines, (begin + source).ravel(), (begin + target).ravel())
    columns = (np.tile(column.astype(np.int32), pipelines) for column in (stage, chunk, microbatch, kind, place))
    return Graph(ordered, np.repeat(np.arange(pipelines, dtype=np.int32), size), *columns)


def _edges(kind: Ints, microbatch: Ints, model_stage: Ints, place: Ints) -> tuple[Ints, Ints]:
    """Edges of one pipeline."""
    last = int(model_stage.max())
    node = np.empty((len(Pass), last + 1, int(microbatch.max()) + 1), dtype=np.int64)
    node[kind, model_stage, microbatch] = np.arange(len(kind))
    forward, backward = node[Pass.FORWARD], node[Pass.BACKWARD]
    following = np.flatnonzero(place > 0)
    pairs = (
        (following - 1, following),
        (forward[:-1], forward[1:]),
        (forward[last], backward[last]),
        (backward[1:], backward[:-1]),
    )
    source, target = zip(*((a.ravel(), b.ravel()) for a, b in pairs), strict=True)
    return np.concatenate(source), np.concatenate(target)


def _alternating(count: int, warmup: int, put_off: int | None = None) -> tuple[Ints, Ints]:
    """Kinds and numbers of passes: `warmup` forwards, then one forward and one backward in turn, then the backwards left.

    With `put_off`, backward number j is followed by the weights of number j - `put_off`; those left over come at the end.
    """
    number = np.arange(count)
    forward = np.where(number < warmup, number, 2 * number - warmup)
    backward = np.where(number < count - warmup, 2 * number + warmup + 1, count + number)
    places = [forward, backward]
    if put_off is not None:
        before = np.maximum(number - put_off, 0)
        followed = np.minimum(number + put_off, count - 1)
        weights = np.where(number + put_off < count, backward[followed] + number + 1, 2 * count + number)
        places = [forward + np.maximum(number - warmup - put_off, 0), backward + before, weights]
    everywhere = np.concatenate(places)
    kind, numbers = np.empty_like(everywhere), np.empty_like(everywhere)
    kind[everywhere] = np.repeat(np.arange(len(places)), count)
    numbers[everywhere] = np.tile(number, len(places))
    return kind, numbers


def _interleaved(schedule: Schedule, stage: int, stages: int, microbatches: int, chunks: int) -> Order:
    total = microbatches * chunks
    warmup = min((stages - stage - 1) * 2 + (chunks - 1) * stages, total)
    if schedule is Schedule.INTERLEAVED_OLDER and microbatches == stages:
        warmup = total
    kind, number = _alternating(total, warmup)
    turn, within = np.divmod(number, stages * chunks)
    chunk = within // stages
    microbatch = turn * stages + within % stages
    return Order(kind, microbatch, np.where(kind == Pass.FORWARD, chunk, chunks - 1 - chunk))
