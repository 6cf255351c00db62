"""Iterations of one pipeline made by hand, and the times inside calls that exact ranks would have in them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from forensics.rules.reductions.pipeline.dag import Floats
from forensics.rules.reductions.pipeline.iteration import Iteration, Work
from forensics.rules.reductions.pipeline.passes import BACKWARD, FORWARD
from forensics.rules.reductions.pipeline.schedules import Graph, Schedule, graph

TRANSFER_NS = 1e6


def made_iteration(schedule: Schedule, stages: int, microbatches: int) -> Iteration:
    """One rank a stage; messages are received right before their pass and sent right after it."""
    passes = graph(schedule, stages, microbatches)
    works = [_work(passes, stage) for stage in range(stages)]
    edges = np.flatnonzero(passes.is_message)
    places = {stage: {int(node): place for place, node in enumerate(works[stage].passes)} for stage in range(stages)}
    pairs, carries = [], np.full(len(passes.dag.source), -1)
    for number, edge in enumerate(edges.tolist()):
        source, target = int(passes.dag.source[edge]), int(passes.dag.target[edge])
        sender, receiver = int(passes.stage[source]), int(passes.stage[target])
        sent = int(works[sender].sent[places[sender][source]])
        pairs.append((sender, sent, receiver, int(works[receiver].received[places[receiver][target]])))
        carries[edge] = number
    return Iteration(
        stages=tuple((stage,) for stage in range(stages)),
        stage=passes.stage.astype(np.int64),
        direction=np.where(passes.is_forward, FORWARD, BACKWARD),
        chunk=passes.chunk.astype(np.int64),
        microbatch=passes.microbatch.astype(np.int64),
        works=tuple(works),
        pairs=np.array(pairs, dtype=np.int64).reshape(-1, 4),
        graph=passes.dag,
        carries=carries,
    )


def _work(passes: Graph, stage: int) -> Work:
    nodes = np.flatnonzero(passes.stage == stage)
    last = int(passes.stage.max())
    forward = passes.is_forward[nodes]
    receives = np.where(forward, stage > 0, stage < last)
    sends = np.where(forward, stage < last, stage > 0)
    received: list[int] = []
    sent: list[int] = []
    before: list[int] = []
    is_send: list[bool] = []
    for place in range(len(nodes)):
        for wanted, found, kind in ((receives[place], received, False), (sends[place], sent, True)):
            found.append(len(before) if wanted else -1)
            if wanted:
                before.append(place + kind)
                is_send.append(kind)
    numbers = np.arange(len(before))
    none = np.zeros(0, np.int64)
    came, went, done = (np.array(each, dtype=np.int64) for each in (received, sent, before))
    flags = np.array(is_send, dtype=np.bool_)
    return Work(stage, stage, nodes, came, went, numbers, flags, done, numbers, none, none)


def inside(made: Iteration, durations: Floats, *, ahead: bool) -> Mapping[int, Floats]:
    """Times inside the messages of each rank, where passes take `durations`: receives called ahead, or in turn.

    In turn, a receive is called when the pass before it is done, a message moves when both ends have called it, and the work
    that follows waits for it. Ahead, a receive is called when the one before it ended, and sends hold nobody up.
    """
    done = [np.zeros(len(work.passes)) for work in made.works]
    ends = [np.zeros(len(work.messages)) for work in made.works]
    begins = [np.zeros(len(work.messages)) for work in made.works]
    for _ in range(made.graph.size + 1):
        before = np.concatenate([*done, *ends])
        for number, work in enumerate(made.works):
            done[number] = _done(work, durations, ends[number], ahead)
            begins[number] = _begins(work, done[number], ends[number], ahead)
        for sender, sent, receiver, received in made.pairs.tolist():
            moved = max(begins[sender][sent], begins[receiver][received]) + TRANSFER_NS
            ends[sender][sent] = ends[receiver][received] = moved
        if np.array_equal(before, np.concatenate([*done, *ends])):
            break
    return {work.rank: ends[number] - begins[number] for number, work in enumerate(made.works)}


def _done(work: Work, durations: Floats, ends: Floats, ahead: bool) -> Floats:
    done, moment = np.zeros(len(work.passes)), 0.0
    for place, node in enumerate(work.passes.tolist()):
        waited = (
            ends[work.received[place : place + 1][work.received[place : place + 1] >= 0]]
            if ahead
            else ends[work.before <= place]
        )
        moment = max(moment, float(waited.max(initial=0.0))) + float(durations[node])
        done[place] = moment
    return done


def _begins(work: Work, done: Floats, ends: Floats, ahead: bool) -> Floats:
    begins = np.append(0.0, done)[work.before]
    if ahead:
        receives = ends[~work.is_send]
        begins[~work.is_send] = np.append(0.0, receives)[: len(receives)]
    return begins


def as_long_as(made: Iteration, forward_ns: float, backward_ns: float) -> Floats:
    """The same duration for all passes of a direction."""
    return np.where(made.direction == FORWARD, forward_ns, backward_ns)
