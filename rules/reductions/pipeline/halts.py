"""Where the passes of a step that hangs came to a halt: the first incomplete ones whose predecessors are all complete.

The incomplete graph of VenusTrace section 3.3, on the passes as the ranks worked on them in the step before; what its
algorithm 1 does otherwise is in docs/decisions/0019-printed-algorithms.md. A pass that sent its message is complete; one that sends none is
when its collectives ended, or a later message was sent. A pass of several ranks is complete when it is for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.pipeline.critical_path import halted, out_of_order
from forensics.rules.reductions.pipeline.dag import Flags
from forensics.rules.reductions.pipeline.iteration import Iteration, UnknownPassesError, Work, iteration
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.pipeline.slow_steps import pipelines_of


@dataclass(frozen=True, slots=True)
class HaltedPass:
    """A pass that is not complete although all that it waits for is; `is_received`: its message had come, or it needs none."""

    ranks: tuple[int, ...]
    stage: int
    direction: int
    chunk: int | None
    microbatch: int
    is_received: bool


@dataclass(frozen=True, slots=True)
class Halt:
    """The halted passes of one pipeline, and how many of the passes of the step were complete."""

    passes: tuple[HaltedPass, ...]
    complete: int
    of: int


def halt(rank: int, places: CallPlaces, layout: Layout) -> Halt | None:
    """Where the pipeline of a rank came to a halt; None where passes are not known, or completed in another order."""
    chains = next((each for each in pipelines_of(layout) if any(rank in chain for chain in each)), None)
    if chains is None:
        return None
    places.read(rank for chain in chains for rank in chain)
    try:
        passes = iteration(chains, places)
    except UnknownPassesError:
        return None
    told = [_complete(passes, work, places) for work in passes.works]
    if any(each is None for each in told):
        return None
    complete = np.logical_and.reduce([done for each in told if each is not None for done in each[:1]])
    received = np.logical_and.reduce([came for each in told if each is not None for came in each[1:]])
    # Completed behind an incomplete one: another order, or records that end at different times.
    if complete.all() or not complete.any() or len(out_of_order(passes.graph, complete)):
        return None
    several = bool((passes.chunk > 0).any())
    found = tuple(
        HaltedPass(
            ranks=passes.stages[int(passes.stage[node])],
            stage=int(passes.stage[node]),
            direction=int(passes.direction[node]),
            chunk=int(passes.chunk[node]) if several else None,
            microbatch=int(passes.microbatch[node]),
            is_received=bool(received[node]),
        )
        for node in halted(passes.graph, complete).tolist()
    )
    return Halt(found, int(complete.sum()), passes.graph.size)


def _complete(passes: Iteration, work: Work, places: CallPlaces) -> tuple[Flags, Flags] | None:
    """Which passes a rank completed in its last step, and which messages for them it received; others count as done.

    None where its last step went another way than its usual one.
    """
    told = places.told(work.rank)
    if told is None or told.usual is None or not len(told.begins):
        return None
    begin, usual = int(told.begins[-1]), told.record.token[slice(*told.usual)]
    made = told.record.token[begin:]
    if len(made) > len(usual) or (made != usual[: len(made)]).any():
        return None
    done = np.zeros(len(usual), np.bool_)
    done[: len(made)] = told.record.done[begin:]
    ended = done[work.messages]
    complete = np.zeros(len(work.passes), np.bool_)
    sends = work.sent >= 0
    complete[sends] = ended[work.sent[sends]]
    later = np.append(np.maximum.accumulate(complete[::-1])[::-1][1:], np.False_)
    for place in np.flatnonzero(~sends).tolist():
        inside = work.inside[work.of == work.passes[place]]
        complete[place] = later[place] or (len(inside) > 0 and bool(done[inside].all()))
    came = np.ones(len(work.passes), np.bool_)
    came[work.received >= 0] = ended[work.received[work.received >= 0]]
    return _of_all(passes, work, complete), _of_all(passes, work, came)


def _of_all(passes: Iteration, work: Work, own: Flags) -> Flags:
    found = np.ones(passes.graph.size, np.bool_)
    found[work.passes] = own
    return found
