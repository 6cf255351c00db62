"""Where the steps of the training begin in the record of a rank: at what recurs least often, once a step.

A rank repeats its program step by step, and a microbatch repeats a part of it several times. The collectives that recur least
often (gradient norm, loss, reduction of what two stages share) recur once a step, or a few times; as many of them make a step
as leave the same calls between one and the next. A record of less than two steps still shows where one ended, if all ranks met
there. Where a profiler marked the steps, its marks count.
"""

from __future__ import annotations

import numpy as np

from forensics.rules.reductions.steps.pieces import whole_steps
from forensics.rules.reductions.steps.records import UNKNOWN, Ints, Record

# A step has no more calls of its rarest kind than this.
_MOST_MARKS = 4
_MOST_MISTAKES = 1
# Evaluation, checkpoints and a step that was cut may differ from the others.
_ALIKE = 0.7


def step_begins(record: Record) -> Ints:
    """Places of the first call of each step that the record shows whole or in part; empty where none is seen.

    The calls before the first place belong to a step whose begin is not in the record. Behind the last step that is marked
    follows its end.
    """
    if record.is_marked:
        inside = np.flatnonzero(record.step != UNKNOWN)
        return np.append(inside[np.diff(record.step[inside], prepend=UNKNOWN) != 0], inside[-1] + 1)
    joint = np.flatnonzero(~record.is_message)
    tokens, counts = np.unique(record.form[joint], return_counts=True)
    recurring = counts[counts > 1]
    once = joint[np.isin(record.form[joint], tokens[counts == 1])]
    if not len(recurring):
        return _after_single(record, record.form[once])
    rare = tokens[counts == recurring.min()]
    steady = _without_barriers(record, tokens, counts)
    rare = rare if np.isin(rare, steady).any() or not len(steady) else steady
    marks = max((_marks(record, rare, token) for token in rare.tolist()), key=lambda found: _rank_of(record, found))
    # Calls that are made once as the job begins, in the step that it is in, or by mistake, are of no step of their own.
    if ((once > marks[1][0]) & (once < marks[1][-1])).sum() > _MOST_MISTAKES:
        return _after_single(record, record.form[once])
    return _recurring(record, marks)


def _without_barriers(record: Record, tokens: Ints, counts: Ints) -> Ints:
    """The rarest recurring calls that are no barriers, if everybody makes one of them; else empty."""
    recurring = (counts > 1) & ~np.isin(tokens, record.form[record.is_barrier])
    rare: Ints = tokens[recurring & (counts == counts[recurring].min(initial=np.iinfo(np.int64).max))]
    by_all = (record.members[np.isin(record.form, rare)] == record.members.max()).any()
    return rare if by_all else rare[:0]


def _marks(record: Record, rare: Ints, token: int) -> tuple[bool, Ints]:
    """Calls of a rare kind, and whether they are the last of a run of rare ones."""
    places = np.flatnonzero(record.form == token)
    after = places[places < len(record) - 1] + 1
    closes = bool(len(after)) and bool((~np.isin(record.form[after], rare)).mean() > _ALIKE)
    return closes, places


def _rank_of(record: Record, found: tuple[bool, Ints]) -> tuple[bool, int, int]:
    closes, places = found
    return closes, int(record.members[places[0]]), int(places[-1])


def _after_single(record: Record, rare: Ints) -> Ints:
    """After the only call that everybody makes, where a record holds the end of one step and nothing of a second one."""
    everybody = int(record.members.max())
    places = np.flatnonzero(np.isin(record.form, rare) & (record.members == everybody) & ~record.is_message)
    run = places[np.flatnonzero(np.diff(places, append=len(record) + 1) > 1)]
    return run + 1 if len(run) == 1 and everybody > 1 else np.empty(0, np.int64)


def _recurring(record: Record, found: tuple[bool, Ints]) -> Ints:
    """Every k-th mark, for the least k that leaves alike steps."""
    begins = found[1] + 1
    whole = whole_steps(record, begins)
    if len(whole) < len(begins):
        return whole
    for marks in range(1, min(_MOST_MARKS, len(begins) - 1) + 1):
        # The last mark is counted from: what the job does now goes before what it did at its start.
        chosen = begins[(len(begins) - 1) % marks :: marks]
        if _are_alike(record, chosen):
            return chosen
    return np.empty(0, np.int64)


def _are_alike(record: Record, begins: Ints) -> bool:
    """Whether most steps have the same calls as the step before, barriers aside, or whether there is one step only."""
    tokens, counts = _counted(record, begins)
    kept = counts[:, ~np.isin(tokens, record.form[record.is_barrier])]
    same = (kept[1:] == kept[:-1]).all(axis=1)
    return not len(same) or float(same.mean()) >= _ALIKE


def _counted(record: Record, begins: Ints) -> tuple[Ints, Ints]:
    """The kinds of calls in steps, and how often each step (row) has each of them (column)."""
    tokens, codes = np.unique(record.form[begins[0] : begins[-1]], return_inverse=True)
    steps = len(begins) - 1
    cells = np.repeat(np.arange(steps), np.diff(begins)) * len(tokens) + codes
    return tokens, np.bincount(cells, minlength=steps * len(tokens)).reshape(steps, len(tokens))


def usual_step(record: Record, begins: Ints) -> tuple[int, int] | None:
    """The newest whole step that has the calls most steps have; None without a whole one."""
    bounds: list[tuple[int, int]] = list(zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True))
    if not bounds:
        return None
    _, counts = _counted(record, begins)
    shapes = [row.tobytes() for row in counts]
    usual = max(dict.fromkeys(shapes), key=shapes.count)
    return next(bound for bound, shape in zip(reversed(bounds), reversed(shapes), strict=True) if shape == usual)
