"""Where the passes of a step that hangs came to a halt: the first incomplete ones whose predecessors are all complete.

The incomplete graph of VenusTrace section 3.3, on the passes as the ranks worked on them in the step before; what its
algorithm 1 does otherwise is in docs/decisions/0019-printed-algorithms.md. A pass that sent its message is complete; one that
sends none is when its collectives ended, or a later message was sent. A pass of several ranks is complete when it is for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forensics.rules.reductions.pipeline.call_place import CallPlace
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.pipeline.critical_path import halted, out_of_order
from forensics.rules.reductions.pipeline.dag import Flags, Ints
from forensics.rules.reductions.pipeline.iteration import Iteration, UnknownPassesError, Work, iteration
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.pipeline.slow_steps import pipelines_of
from forensics.rules.reductions.steps.records import UNKNOWN


@dataclass(frozen=True, slots=True)
class HaltedPass:
    """A pass that is not complete although all that it waits for is; `is_received`: its message had come, or it needs none.

    `behind` is the next one of its ranks where that may have halted: nothing shows whether this one ended.
    """

    ranks: tuple[int, ...]
    place: CallPlace
    is_received: bool
    behind: CallPlace | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Halt:
    """The halted passes of one pipeline, and the graph of its step with the passes that are `complete`, by node."""

    passes: tuple[HaltedPass, ...]
    step: Iteration
    complete: Flags

    @property
    def microbatches(self) -> int:
        """Microbatches of the step."""
        return int(self.step.microbatch.max()) + 1


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    """What a rank did of its passes in a step: `complete`, message `received`, collectives `inside` done; messages `issued`."""

    complete: Flags
    received: Flags
    inside: Flags
    issued: Flags


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
    states = [_state(work, places) for work in passes.works]
    known = [state for state in states if state is not None]
    if len(known) < len(states):
        return None
    _without_receiver(passes, known)
    complete, received = (
        np.logical_and.reduce(
            [_of_all(passes, work, getattr(state, name)) for work, state in zip(passes.works, known, strict=True)]
        )
        for name in ("complete", "received")
    )
    # Completed behind an incomplete one: another order, or records that end at different times.
    if complete.all() or not complete.any() or len(out_of_order(passes.graph, complete)):
        return None
    found = tuple(
        HaltedPass(
            passes.stages[int(passes.stage[node])],
            passes.place(node),
            bool(received[node]),
            _behind(passes, node) if received[node] else None,
        )
        for node in halted(passes.graph, complete).tolist()
    )
    return Halt(found, passes, complete)


def _behind(passes: Iteration, node: int) -> CallPlace | None:
    """The next pass of those that work on one whose end neither a message nor a collective shows; None for any other."""
    following: set[int] = set()
    for work in (each for each in passes.works if node in each.passes):
        at = int(np.flatnonzero(work.passes == node)[0])
        if work.sent[at] >= 0 or node in work.of:
            return None
        following.update(work.passes[at + 1 : at + 2].tolist())
    return passes.place(following.pop()) if len(following) == 1 else None


def _state(work: Work, places: CallPlaces) -> _State | None:
    """What a rank did in its last step; None where it went another way than its usual one."""
    stated = places.steps(work.rank)
    if stated is None or stated.usual is None or not len(stated.begins):
        return None
    usual = stated.record.form[slice(*stated.usual)]
    # Members of a group call keep their state; the entry that closes it has the end.
    over = stated.record.done | (stated.record.end_ns != UNKNOWN)
    begin = _step_of(stated.begins, over)
    made = stated.record.form[begin : begin + len(usual)]
    if begin < 0 or (made != usual[: len(made)]).any():
        return None
    done = np.zeros(len(usual), np.bool_)
    done[: len(made)] = over[begin : begin + len(usual)]
    ended, inside = done[work.messages], _inside_done(work, done)
    complete = (work.sent >= 0) & ended[work.sent]
    later = np.append(np.maximum.accumulate(complete[::-1])[::-1][1:], np.False_)
    complete |= (work.sent < 0) & (later | (inside & np.isin(work.passes, work.of)))
    return _State(complete, (work.received < 0) | ended[work.received], inside, work.messages < len(made))


def _inside_done(work: Work, done: Flags) -> Flags:
    """Whether all collectives within each pass ended."""
    open_ones = work.of[~done[work.inside]]
    return ~np.isin(work.passes, open_ones)


def _without_receiver(passes: Iteration, states: Sequence[_State]) -> None:
    """Count a pass as complete whose message only lacks the call that would receive it: the receiver's host is not there.

    Only the first incomplete pass of a rank, with its collectives done: of those behind it nothing is known.
    """
    for sender, sent, receiver, received in passes.pairs.tolist():
        state, work = states[sender], passes.works[sender]
        place = int(np.flatnonzero(work.sent == sent)[0])
        is_next = not state.complete[place] and state.complete[:place].all() and state.inside[place] and state.received[place]
        if is_next and state.issued[sent] and not states[receiver].issued[received]:
            state.complete[place] = True


def _step_of(begins: Ints, over: Flags) -> int:
    """Where the step begins that a rank is in: that of its first call that has not ended, as hosts run ahead; -1 not known."""
    if over.all():
        return int(begins[-1])
    place = int(np.searchsorted(begins, int((~over).argmax()), side="right")) - 1
    return int(begins[place]) if place >= 0 else -1


def _of_all(passes: Iteration, work: Work, own: Flags) -> Flags:
    found = np.ones(passes.graph.size, np.bool_)
    found[work.passes] = own
    return found
