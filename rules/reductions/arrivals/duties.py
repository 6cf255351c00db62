"""Whether a rank comes late by work that the job gives to it alone: another rank in its place would have the work as well."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from forensics.rules.reductions.arrivals.arrivals import Series
from forensics.rules.reductions.calls.semantics import FROM_ONE, stem_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Between two calls of the duty another kind of call recurs, as many times at least.
_LEAST_BETWEEN = 2
_TO_ONE = frozenset({"gather", "reduce"})
# A call among those between, to which the rank came later than the others by chance.
_MOST_LATE = 0.1
# What the others need before the call, of all that they work until the next one: with more, it is of their step.
_MOST_OF_STEP = 0.2
# What the others need before the call, of what the rank needs: on a busy host their last call and the optimizer take a quarter.
_MOST_OF_OTHERS = 1 / 3


def is_duty(column: int, calls: Series, newest: int, group: Sequence[Series], least_ns: float) -> bool:
    """Whether a rank is late to the newest calls of a kind by work of its own; `group` are all series of the same members.

    Evaluation, logging or saving on rank 0, for which the others wait at a barrier: another rank in its place would have the
    work as well. Three things mark it: the rank comes late to calls of this kind and in time to those that recur between them
    (twice as often; a barrier moves no data, and as often is enough); the others have little to do before such a call; and it
    has always been so. Where ranks send what they have to one rank, and it sends something back to all, as often is enough as
    well: a learner, a server, a search. Data that is reduced after a good part of the others' work is of everybody's step, also
    where layers of one size are reduced several times in it. A lateness below `least_ns` is none.
    """
    between = [series for series in group if len(series) >= _least_between(calls, series) * newest]
    if not any(_is_on_time(column, series, least_ns) for series in between):
        return False
    usual, needed = _work_before(column, calls, newest, np.concatenate([series.at_ns for series in group]))
    if not len(usual) or (_moves_data(calls, between) and _is_of_step(float(np.median(usual)), column, calls, newest)):
        return False
    shares = np.divide(usual, needed, out=np.ones(len(needed)), where=needed > 0)
    return 2 * len(shares) > newest and bool(np.median(shares) <= _MOST_OF_OTHERS)


def _moves_data(calls: Series, between: Sequence[Series]) -> bool:
    """Whether a call is no barrier, and no answer of one rank to what it was sent."""
    kind = stem_of(calls.kind)
    return kind != "barrier" and not (kind in FROM_ONE and any(stem_of(series.kind) in _TO_ONE for series in between))


def _is_of_step(before_ns: float, column: int, calls: Series, newest: int) -> bool:
    """Whether the others do much of their work before the call, of all until the next one but what they wait for the rank."""
    apart = np.delete(np.diff(calls.at_ns[-newest:], axis=0), column, axis=1)
    waited = np.median(calls.lateness(column)[-newest:])
    return bool(len(apart)) and before_ns > _MOST_OF_STEP * float(np.median(apart) - waited)


def _least_between(calls: Series, before: Series) -> int:
    """How often others recur between two late calls: as often where these move no data, or give all what one rank has made."""
    kind = stem_of(calls.kind)
    is_answer = kind in FROM_ONE and stem_of(before.kind) in _TO_ONE
    return 1 if kind == "barrier" or is_answer else _LEAST_BETWEEN


def _is_on_time(column: int, series: Series, least_ns: float) -> bool:
    late = np.count_nonzero(series.lateness(column) >= least_ns)
    return bool(late <= _MOST_LATE * len(series))


def _work_before(column: int, calls: Series, newest: int, at_ns: Ints) -> tuple[Floats, Floats]:
    """ns that the usual other member, and the rank, needed since the call before, for each of the newest calls.

    `at_ns` are moments of all calls of the group. Where only ends are known, who came last came when it ended.
    """
    order = np.argsort(at_ns[:, column], kind="stable")
    places = np.searchsorted(at_ns[order, column], calls.at_ns[-newest:, column])
    own = calls.at_ns[-newest:] - at_ns[order[places - 1]]
    if calls.on_own_clocks:
        behind = calls.behind[-newest:]
        own += behind - behind.max(axis=1, keepdims=True)
    own = own[places > 0]
    return np.median(np.delete(own, column, axis=1), axis=1), own[:, column].astype(np.float64)
