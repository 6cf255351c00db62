"""Where the steps of the training begin in the record of a rank: at what recurs least often, once a step.

A rank repeats its program step by step, and a microbatch repeats a part of it several times. The collectives that recur least
often (gradient norm, loss, reduction of what two stages share) recur once a step, or a few times; as many of them make a step
as leave the same calls between one and the next. A record of less than two steps still shows where one ended, if all ranks met
there. Where a profiler marked the steps, its marks count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forensics.rules.reductions.steps.evaluated import evaluations_apart, steps_between
from forensics.rules.reductions.steps.pieces import whole_steps
from forensics.rules.reductions.steps.records import UNKNOWN, Flags, Ints, Record

# A step has no more calls of its rarest kind than this.
_MOST_MARKS = 4
_MOST_MISTAKES = 1
# Evaluation, checkpoints and a step that was cut may differ from the others.
_ALIKE = 0.7
# Counts that one call in the place of another changes: one less of the one form, one more of the other.
_REPLACED = 2
# A pass has a call at its begin and one at its end.
_GROWN = 2


@dataclass(frozen=True, slots=True)
class Cut:
    """Places of the first calls of steps; `by_time` where they follow from when calls were made, not only from which."""

    begins: Ints
    by_time: bool = False


def step_begins(record: Record) -> Ints:
    """Places of the first call of each step that the record shows whole or in part; empty where none is seen."""
    return step_cut(record).begins


def step_cut(record: Record) -> Cut:
    """The same, and whether it follows from times.

    The calls before the first place belong to a step whose begin is not in the record. Behind the last step that is marked
    follows its end.
    """
    if record.is_marked:
        inside = np.flatnonzero(record.step != UNKNOWN)
        return Cut(np.append(inside[np.diff(record.step[inside], prepend=UNKNOWN) != 0], inside[-1] + 1))
    forms = _Forms.of(record)
    joint = np.flatnonzero(~record.is_message)
    counts = np.bincount(forms.code[joint], minlength=forms.count)
    recurring = counts[counts > 1]
    if not len(recurring):
        return Cut(_after_single(record, forms, counts == 1))
    rare = counts == recurring.min()
    steady = _without_barriers(record, forms, counts)
    rare = rare if (rare & steady).any() or not steady.any() else steady
    between = steps_between(record, rare, counts)
    if between is not None:
        return Cut(between)
    found = [_marks(record, forms, rare, form) for form in np.flatnonzero(rare).tolist()]
    marks = max(found, key=lambda each: _rank_of(record, each))
    once = joint[counts[forms.code[joint]] == 1]
    # Calls that are made once as the job begins, in the step that it is in, or by mistake, are of no step of their own.
    if ((once > marks[1][0]) & (once < marks[1][-1])).sum() > _MOST_MISTAKES:
        return Cut(_after_single(record, forms, counts == 1))
    return _recurring(record, forms, marks)


@dataclass(frozen=True, slots=True)
class _Forms:
    """The form of each call of a record, `count` of all forms, and which of them are those of barriers."""

    code: Ints
    count: int
    is_barrier: Flags

    @classmethod
    def of(cls, record: Record) -> _Forms:
        """The forms of a record."""
        is_barrier = np.zeros(int(record.form.max(initial=-1)) + 1, np.bool_)
        is_barrier[record.form[record.is_barrier]] = True
        return cls(record.form, len(is_barrier), is_barrier)


def _without_barriers(record: Record, forms: _Forms, counts: Ints) -> Flags:
    """The rarest recurring forms that are no barriers, if everybody makes one of them; else none."""
    recurring = (counts > 1) & ~forms.is_barrier
    rare: Flags = recurring & (counts == counts[recurring].min(initial=np.iinfo(np.int64).max))
    by_all = (record.members[rare[forms.code]] == record.members.max()).any()
    return rare if by_all else np.zeros_like(rare)


def _marks(record: Record, forms: _Forms, rare: Flags, form: int) -> tuple[bool, Ints]:
    """Calls of a rare form, and whether they, or what a few of them in a row end with, are the last of a run of rare ones."""
    places = np.flatnonzero(forms.code == form)
    after = places[places < len(record) - 1] + 1
    after = after[forms.code[after] != form]
    closes = bool(len(after)) and bool((~rare[forms.code[after]]).mean() > _ALIKE)
    return closes, places


def _rank_of(record: Record, found: tuple[bool, Ints]) -> tuple[bool, int, int]:
    closes, places = found
    return closes, int(record.members[places[0]]), int(places[-1])


def _after_single(record: Record, forms: _Forms, rare: Flags) -> Ints:
    """After the only call that everybody makes, where a record holds the end of one step and nothing of a second one."""
    everybody = int(record.members.max())
    places = np.flatnonzero(rare[forms.code] & (record.members == everybody) & ~record.is_message)
    run = places[np.flatnonzero(np.diff(places, append=len(record) + 1) > 1)]
    return run + 1 if len(run) == 1 and everybody > 1 else np.empty(0, np.int64)


def _recurring(record: Record, forms: _Forms, found: tuple[bool, Ints]) -> Cut:
    """The begins of steps that marks cut into pieces, or that are some of the marks."""
    begins = found[1] + 1
    whole, by_time = whole_steps(record, begins)
    return Cut(whole if len(whole) < len(begins) else _every_kth(record, forms, begins), by_time)


def _every_kth(record: Record, forms: _Forms, begins: Ints) -> Ints:
    """Every k-th mark, for the least k that leaves alike steps."""
    # The last mark is counted from: what the job does now goes before what it did at its start.
    parts = [begins[(len(begins) - 1) % marks :: marks] for marks in range(1, min(_MOST_MARKS, len(begins) - 1) + 1)]
    alike: list[Ints] = []
    for chosen in parts:
        steps = evaluations_apart(record, chosen, forms.count)
        alike += [steps] if steps is not chosen or _are_alike(forms, chosen) else []
        if alike and len(alike[-1]) > 2:
            break
    # A step that nothing is compared with may be two: of a batch that grows each is as the one before, and longer.
    compared = next((chosen for chosen in alike if len(chosen) > 2), None)
    if compared is None and _grow(forms, begins):
        return begins
    return compared if compared is not None else alike[0] if alike else np.empty(0, np.int64)


def _are_alike(forms: _Forms, begins: Ints) -> bool:
    """Whether most steps have the same calls as the step before, barriers aside, or whether there is one step only.

    In the newest one, in which a job may stand still, one call may stand in the place of another.
    """
    more = np.diff(_counted(forms, begins)[:, ~forms.is_barrier], axis=0)
    same = (more == 0).all(axis=1)
    same[-1:] |= (np.abs(more[-1:]).sum(axis=1) == _REPLACED) & (more[-1:].sum(axis=1) == 0)
    return not len(same) or float(same.mean()) >= _ALIKE


def _grow(forms: _Forms, begins: Ints) -> bool:
    """Whether each step has the forms of calls of the one before, barriers aside, and as many or more of several.

    So does a batch that grows now and then. A call that is made once more by mistake is of one form.
    """
    counted = _counted(forms, begins)[:, ~forms.is_barrier]
    more = np.diff(counted, axis=0)
    same, grown = ((counted[1:] > 0) == (counted[:-1] > 0)).all(), (more > 0).sum(axis=1)
    return bool(same and (more >= 0).all() and (grown >= _GROWN).any() and ((grown == 0) | (grown >= _GROWN)).all())


def _counted(forms: _Forms, begins: Ints) -> Ints:
    """How often each step (row) has each form of calls (column)."""
    steps = len(begins) - 1
    cells = np.repeat(np.arange(steps), np.diff(begins)) * forms.count + forms.code[begins[0] : begins[-1]]
    return np.bincount(cells, minlength=steps * forms.count).reshape(steps, forms.count)


def usual_step(record: Record, begins: Ints) -> tuple[int, int] | None:
    """The newest whole step that has the calls most steps have; None without a whole one."""
    bounds: list[tuple[int, int]] = list(zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True))
    if not bounds:
        return None
    shapes = [row.tobytes() for row in _counted(_Forms.of(record), begins)]
    usual = max(dict.fromkeys(shapes), key=shapes.count)
    return next(bound for bound, shape in zip(reversed(bounds), reversed(shapes), strict=True) if shape == usual)
