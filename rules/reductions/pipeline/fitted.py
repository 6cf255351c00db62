"""Usual durations of passes, by the times inside messages: those with which both ends leave each message together.

Receives are called in two ways. In turn: one begins when the work called before it is done, and the work after it waits for it.
Ahead: one begins when the receive before it ended, beside the work. Which one a job has is shown by which fits its times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forensics.rules.reductions.pipeline.dag import Floats, Ints
from forensics.rules.reductions.pipeline.iteration import Iteration, UnknownPassesError, Work

_PRIOR = 1e-2
"""Weight of what messages may leave open (all stages begin together, work as long as each other) beside one message."""
_MISFIT = 0.05
"""Of the time that a stage works in a step: by more than that messages do not end together, and passes cannot be dated."""
_ROUNDS = 12


@dataclass(frozen=True, slots=True, eq=False)
class Durations:
    """Usual durations in ns of each kind of pass, begin of each stage; `misfit` is a share of the work."""

    kinds: Floats
    begin: Floats
    in_turn: bool
    misfit: float


def fitted(iteration: Iteration, inside: Sequence[Floats], like: Durations | None = None) -> Durations:
    """The durations that fit best, by the times in ns inside the messages of each rank; raises UnknownPassesError.

    `like` are those of another step of the job: receives are called in the same way, and passes take about as long.
    """
    found = [_in_turn(iteration, inside)] if like is None or like.in_turn else []
    found += [_ahead(iteration, inside, like)] if like is None or not like.in_turn else []
    best = min(found, key=lambda each: each.misfit)
    if not best.misfit <= _MISFIT:
        raise UnknownPassesError("times inside messages do not fit together: they overlap with work differently")
    return best


def _in_turn(iteration: Iteration, inside: Sequence[Floats]) -> Durations:
    counts = [_counts(work, iteration.kind) for work in iteration.works]
    passed = [_passed(work, own) for work, own in zip(iteration.works, inside, strict=True)]
    stages = len(iteration.stages)
    rows = np.zeros((len(iteration.pairs), stages + counts[0].shape[1]))
    known = np.zeros(len(iteration.pairs))
    for row, (sender, sent, receiver, received) in enumerate(iteration.pairs.tolist()):
        for sign, work, message in ((1.0, sender, sent), (-1.0, receiver, received)):
            rows[row, iteration.works[work].stage] += sign
            rows[row, stages:] += sign * counts[work][iteration.works[work].before[message]]
            known[row] -= sign * passed[work][message]
    return _durations(iteration, _solution(iteration, rows, known), rows, known, in_turn=True)


def _counts(work: Work, kind: Ints) -> Floats:
    """Passes of each kind among the first ones of a rank, by their number."""
    each = np.eye(int(kind.max()) + 1)[kind[work.passes]]
    return np.concatenate([np.zeros((1, each.shape[1])), np.cumsum(each, axis=0)])


def _passed(work: Work, inside: Floats) -> Floats:
    """For each message the time that a rank had been inside messages when it ended: those without work between are parallel."""
    most = np.zeros(len(work.passes) + 1)
    np.maximum.at(most, work.before, inside)
    return np.asarray((np.cumsum(most) - most)[work.before] + inside)


def _ahead(iteration: Iteration, inside: Sequence[Floats], like: Durations | None = None) -> Durations:
    """Receives follow on receives, so that each has a date; a pass is done as its message is sent."""
    dates = [_received(work, own) for work, own in zip(iteration.works, inside, strict=True)]
    done, kind = _done(iteration, inside, dates), iteration.kind
    stages, kinds = len(iteration.stages), int(kind.max()) + 1
    solution = np.zeros(stages + kinds) if like is None else np.concatenate([like.begin, like.kinds])
    rows, known = np.zeros((0, stages + kinds)), np.zeros(0)
    for _ in range(_ROUNDS):
        found = [
            row
            for number, work in enumerate(iteration.works)
            for row in _spans(iteration, work, dates[number], done[number], solution, kind)
        ]
        rows, known = np.array([row for row, _ in found]), np.array([value for _, value in found])
        before, solution = solution, _solution(iteration, rows, known)
        if np.allclose(before, solution, rtol=1e-3):
            break
    return _durations(iteration, solution, rows, known, in_turn=False)


def _received(work: Work, inside: Floats) -> Floats:
    """When each message was received, after the begin of its rank; NaN for those that were sent."""
    dates = np.full(len(inside), np.nan)
    dates[~work.is_send] = np.cumsum(inside[~work.is_send])
    return dates


def _done(iteration: Iteration, inside: Sequence[Floats], dates: Sequence[Floats]) -> list[list[tuple[int, float] | None]]:
    """When the pass that sent each message was done: the stage whose begin it counts from, and ns; None for receives."""
    found: list[list[tuple[int, float] | None]] = [[None] * len(own) for own in inside]
    for sender, sent, receiver, received in iteration.pairs.tolist():
        at = float(dates[receiver][received] - inside[sender][sent])
        found[sender][sent] = iteration.works[receiver].stage, at
    return found


def _spans(
    iteration: Iteration, work: Work, dates: Floats, done: Sequence[tuple[int, float] | None], solution: Floats, kind: Ints
) -> list[tuple[Floats, float]]:
    """An equation for each message that a rank sent: from what the work before it waited for, to its end."""
    stages = len(iteration.stages)
    made: list[tuple[Floats, float]] = []
    start: tuple[int, float] = (work.stage, 0.0)
    row = np.zeros(len(solution))
    for node, received, sent in zip(work.passes.tolist(), work.received.tolist(), work.sent.tolist(), strict=True):
        if received >= 0:
            came = work.stage, float(dates[received])
            reached = solution[start[0]] + start[1] + row[stages:] @ solution[stages:]
            if solution[came[0]] + came[1] >= reached:
                start, row = came, np.zeros(len(solution))
        row[stages + kind[node]] += 1.0
        end = done[sent] if sent >= 0 else None
        if end is not None:
            row[start[0]] += 1.0
            row[end[0]] -= 1.0
            made.append((row, end[1] - start[1]))
            start, row = end, np.zeros(len(solution))
    return made


def _solution(iteration: Iteration, rows: Floats, known: Floats) -> Floats:
    prior = _priors(iteration, rows.shape[1])
    try:
        return np.asarray(np.linalg.lstsq(np.vstack([rows, prior]), np.append(known, np.zeros(len(prior))), rcond=None)[0])
    except np.linalg.LinAlgError as error:
        raise UnknownPassesError("times inside messages do not fit together") from error


def _priors(iteration: Iteration, size: int) -> Floats:
    """Rows that decide what messages leave open: stages begin together, and passes of one direction are as long as others."""
    stages = len(iteration.stages)
    direction = np.zeros(size - stages)
    direction[iteration.kind] = iteration.direction
    alike = np.zeros((size, size))
    alike[:stages, :stages] = np.eye(stages)
    same = (direction[:, None] == direction[None, :]).astype(np.float64)
    alike[stages:, stages:] = np.eye(size - stages) - same / same.sum(axis=1, keepdims=True)
    return _PRIOR * alike


def _durations(iteration: Iteration, solution: Floats, rows: Floats, known: Floats, *, in_turn: bool) -> Durations:
    stages = len(iteration.stages)
    work = float(np.median([solution[stages:][iteration.kind[each.passes]].sum() for each in iteration.works]))
    is_sound = len(rows) and work > 0 and solution[stages:].min() > -_MISFIT * work
    misfit = float(np.median(np.abs(rows @ solution - known))) / work if is_sound else np.inf
    begin = solution[:stages] - solution[:stages].min()
    return Durations(np.maximum(solution[stages:], 0.0), begin, in_turn, misfit)
