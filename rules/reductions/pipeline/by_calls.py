"""Which axis a communicator runs along, by what one of its ranks called in it and when.

Groups inside a layer (tensor, context, expert) are called in every pass, the data-parallel one at the end of a step, or around
each layer where parameters are sharded. A pass is shown by messages to other stages, else by the calls of the busiest group.
Sources: Megatron-LM core/tensor_parallel/mappings.py (one all_reduce, or all_gather and reduce_scatter, around each part of a
layer), torch FSDP2 (all_gathers of a whole forward pass without a reduce_scatter), VenusTrace 3.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
import numpy.typing as npt

from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.sequences import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    REDUCE_SCATTER,
    SCALARS,
    SEND,
    CallSequence,
    Flags,
    Numbers,
)

_LEAST_MESSAGES = 8
_INNER_SHARE, _OUTER_SHARE = 0.35, 0.25
"""Shares of the spaces between messages in which a group is called: every second one has a pass in it."""
_SINGLE = 4
"""Messages a step of a rank that has one microbatch a step, at most: a step is one pass each way there, and shows nothing."""
_INNER_GAP, _OUTER_GAP = 12, 16
"""Calls of the busiest group between two calls of another: one layer makes up to twelve, a step many more."""
_LEAST_CALLS = 8
_SHARDED_RUN = 4
"""Calls of one kind in a row: a tensor-parallel group gathers and scatters in turn, a sharded model gathers for a pass."""
_MOSTLY, _SOME = 0.8, 0.25


@dataclass(frozen=True, slots=True)
class Judged:
    """The axis that calls show; `possible` are all that they do not contradict, `is_assumed` that others are as good."""

    axis: Axis
    possible: frozenset[Axis]
    why: str
    is_assumed: bool = False


class _Place(Enum):
    INNER = auto()
    OUTER = auto()
    ALONE = auto()
    UNKNOWN = auto()


class RankCalls:
    """The calls of one rank, and where each of its communicators is called."""

    def __init__(self, calls: CallSequence) -> None:
        self._calls = calls
        self._is_message = calls.is_message
        self._is_large = (calls.elements > SCALARS) & ~self._is_message
        counts = np.bincount(calls.communicator[self._is_large], minlength=1)
        self._busiest = int(counts.argmax()) if counts.any() else -1
        self._spaces = _spaces(calls, self._is_message)

    def judged(self, communicator: int, *, of_all: bool) -> Judged | None:
        """The axis of a communicator, `of_all` where every rank of the job is in it; None where the calls do not tell."""
        own = (self._calls.communicator == communicator) & self._is_large
        kinds = self._calls.kind[own]
        if not len(kinds):
            return None
        share = {kind: float(np.mean(kinds == kind)) for kind in (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL)}
        place = self._place(communicator, own, of_all=of_all)
        if share[ALL_TO_ALL] >= _SOME:
            return _of_exchanges(self._calls.elements[own], of_all=of_all)
        if share[ALL_GATHER] + share[REDUCE_SCATTER] >= _MOSTLY:
            return self._of_shards(communicator, kinds, place)
        if place is _Place.INNER and self._follows_scatters(own):
            return Judged(Axis.DATA, frozenset({Axis.DATA}), "reductions of what was scattered: replicas of a sharded model")
        return _of_sums(place) if share[ALL_REDUCE] + share[REDUCE_SCATTER] + share[ALL_GATHER] >= _MOSTLY else None

    def outer(self) -> Iterator[tuple[int, Flags]]:
        """Communicators that are called at the end of a step, scalars included, each with its calls."""
        for communicator in np.unique(self._calls.communicator[~self._is_message]).tolist():
            own = (self._calls.communicator == communicator) & ~self._is_message
            if self._by_messages(own) is _Place.OUTER or self._by_busiest(communicator, own) is _Place.OUTER:
                yield communicator, own

    def turns(self) -> int:
        """How often a receive stands before calls at the end of a step and a send behind, less how often the reverse."""
        ends = np.zeros(len(self._spaces), bool)
        for _, own in self.outer():
            ends |= own
        total = int(self._spaces.max()) if len(self._spaces) else 0
        sent = np.where(self._is_message, np.where(self._calls.kind == SEND, 1, -1), 0)
        net = np.sign(np.bincount(self._spaces[self._is_message], sent[self._is_message], minlength=total + 1))
        between = [space for space in np.unique(self._spaces[ends]).tolist() if 0 < space < total]
        return int(sum((net[space + 1] - net[space]) / 2 for space in between if net[space] * net[space + 1] < 0))

    def _place(self, communicator: int, own: Flags, *, of_all: bool) -> _Place:
        by_messages, by_busiest = self._by_messages(own), self._by_busiest(communicator, own)
        if _Place.OUTER in (by_messages, by_busiest):
            return _Place.OUTER
        if by_messages is not _Place.UNKNOWN:
            return by_messages
        if communicator != self._busiest:
            return by_busiest
        # Whether the busiest group is called in layers shows only by another one that is not.
        if not of_all and int(own.sum()) >= _LEAST_CALLS and any(each != communicator for each, _ in self.outer()):
            return _Place.INNER
        return _Place.ALONE if of_all else _Place.UNKNOWN

    def _by_messages(self, own: Flags) -> _Place:
        """By the share of the spaces between messages in which it is called."""
        total = int(self._is_message.sum()) and int(self._spaces.max())
        if total < _LEAST_MESSAGES:
            return _Place.UNKNOWN
        called = len(np.unique(self._spaces[own]))
        if called <= _OUTER_SHARE * total:
            return _Place.OUTER
        return _Place.INNER if called >= _INNER_SHARE * total and self._has_steps(total) else _Place.UNKNOWN

    def _has_steps(self, total: int) -> bool:
        """Whether some calls are rare enough to show that a step has several passes."""
        for communicator in np.unique(self._calls.communicator[~self._is_message]).tolist():
            rare = (self._calls.communicator == communicator) & ~self._is_message
            if 0 < len(np.unique(self._spaces[rare])) * _SINGLE < total:
                return True
        return False

    def _by_busiest(self, communicator: int, own: Flags) -> _Place:
        """By how often the busiest group is called between two calls of this one."""
        if communicator == self._busiest or self._busiest < 0:
            return _Place.UNKNOWN
        before = np.cumsum((self._calls.communicator == self._busiest) & self._is_large)
        gaps = np.diff(before[own])
        if not len(gaps):
            return _Place.OUTER if before[-1] >= 2 * _OUTER_GAP else _Place.UNKNOWN
        largest = int(gaps.max())
        if largest >= _OUTER_GAP:
            return _Place.OUTER
        return _Place.INNER if largest <= _INNER_GAP and len(gaps) >= _LEAST_CALLS else _Place.UNKNOWN

    def _follows_scatters(self, own: Flags) -> bool:
        """Whether calls come after reduce_scatters of a busiest group that shards parameters; in layers they follow gathers.

        A model of few layers shows no long run of gathers: there they are of what a rank got from the reduce_scatter before.
        """
        shards = (self._calls.communicator == self._busiest) & self._is_large
        kinds, before = self._calls.kind[shards], np.cumsum(shards)[own]
        last = before[before > 0] - 1
        follows = kinds[last] == REDUCE_SCATTER
        parts = self._calls.elements[shards][last][follows] / self._calls.elements[own][before > 0][follows]
        is_sharded = _longest_run(kinds) >= _SHARDED_RUN or _is_one_part(parts)
        return is_sharded and int(follows.sum()) >= _MOSTLY * len(before)

    def _of_shards(self, communicator: int, kinds: Numbers, place: _Place) -> Judged | None:
        scatters = bool((kinds == REDUCE_SCATTER).any())
        is_sharded = _longest_run(kinds) >= _SHARDED_RUN and scatters
        if place is _Place.OUTER:
            return Judged(Axis.DATA, frozenset({Axis.DATA}), "reductions and gathers at the end of a step")
        if place is _Place.INNER and not scatters:
            return Judged(Axis.CONTEXT, frozenset({Axis.CONTEXT, Axis.DATA}), "gathers in every layer, no reductions")
        if place is _Place.INNER and not is_sharded:
            return Judged(Axis.TENSOR, frozenset({Axis.TENSOR}), "a gather and a reduce_scatter around each part of a layer")
        # A context-parallel group that gathers keys calls the same; then another group carries the gradients.
        if is_sharded and not any(each != communicator and self._is_large[own].any() for each, own in self.outer()):
            why = "gathers of a whole pass, then reduce_scatters of another: parameters are sharded"
            return Judged(Axis.DATA, frozenset({Axis.DATA, Axis.CONTEXT}), why)
        return _assumed() if place is _Place.ALONE else None


def _of_exchanges(elements: Numbers, *, of_all: bool) -> Judged:
    """Tokens go to experts in parts of any size, heads of an attention always in the same."""
    varies = len(np.unique(elements)) > 2
    possible = {Axis.EXPERT} if varies else {Axis.EXPERT, Axis.CONTEXT}
    return Judged(Axis.EXPERT, frozenset(possible), "all_to_all", is_assumed=of_all)


def _of_sums(place: _Place) -> Judged | None:
    if place is _Place.INNER:
        return Judged(Axis.TENSOR, frozenset({Axis.TENSOR}), "reductions in every pass")
    if place is _Place.OUTER:
        return Judged(Axis.DATA, frozenset({Axis.DATA}), "large reductions at the end of a step")
    return _assumed() if place is _Place.ALONE else None


def _assumed() -> Judged:
    why = "the only group that reduces anything, and of all ranks"
    return Judged(Axis.DATA, frozenset({Axis.DATA, Axis.TENSOR, Axis.CONTEXT}), why, is_assumed=True)


def _spaces(calls: CallSequence, is_message: Flags) -> Numbers:
    """For each call how many messages, or batches of them, stand before it."""
    begins = is_message.copy()
    begins[1:] &= ~(is_message[:-1] & (calls.batch[1:] == calls.batch[:-1]))
    return np.cumsum(begins)


def _is_one_part(sizes: npt.NDArray[np.float64]) -> bool:
    """Whether reduce_scatters are the same whole number of times as large as what follows each of them."""
    return len(sizes) > 0 and sizes[0] > 1 and float(sizes[0]).is_integer() and bool((sizes == sizes[0]).all())


def _longest_run(kinds: Numbers) -> int:
    """Calls of one kind in a row, at most."""
    changes = np.flatnonzero(np.diff(kinds)) + 1
    return int(np.diff([0, *changes.tolist(), len(kinds)]).max())
