"""Steps of a job that evaluates every few of them: what recurs least often is then a call of the evaluation.

It cuts the record into stretches of several steps. All but one of the steps of a stretch have the same calls, among them each
kind that is not as rare; that one has more of the calls of a forward pass, which a step of several microbatches, with a call
of its own at its end, has not. Steps in which a batch still grows come before them, and are not compared.
"""

from __future__ import annotations

import numpy as np

from forensics.rules.reductions.steps.records import Flags, Ints, Record

# Of the steps in which nothing was evaluated: one may have been cut, or a call be made by mistake.
_ALIKE = 0.9
# Of either kind, those with a whole batch: the last one of an epoch has fewer microbatches.
_WHOLE = 0.7
_LEAST_STEPS = 3
# Of the calls of a step: what follows on the last call of all ranks in it.
_MOST_BEHIND = 0.2


def steps_between(record: Record, rare: Flags, counts: Ints) -> Ints | None:
    """Places behind the last call of each step, by what all ranks make next least often; None where these are no steps.

    `rare` are the forms of calls that recur least often, `counts` says how often each form recurs.
    """
    marked = _next_rarest(record, rare, counts)
    if marked is None:
        return None
    begins = np.flatnonzero(record.form == marked) + 1
    counted = _counted(record, begins, len(counts))
    odd: Flags = np.asarray(counted[:, rare].any(axis=1))
    if odd.all():
        return None
    usual = counted[~odd][-1]
    grown = _grown(counted, usual, odd)
    odd[:grown] = False
    plain = counted[grown:][~odd[grown:]]
    if len(plain) < _LEAST_STEPS or not odd.any():
        return None
    often = counts > counts[rare].max()
    often[record.form[record.is_barrier]] = False
    more = counted[odd] - usual
    evaluates: Flags = np.asarray(
        (more >= 0).all(axis=1) & (more[:, ~rare] > 0).any(axis=1) & (more[:, ~rare] == 0).any(axis=1)
    )
    # A piece of one layer has no call twice, and the forward pass beside it more calls than it has.
    whole = bool((usual[often] > 0).all()) and bool(usual.max() > 1)
    whole &= bool((more[evaluates].sum(axis=1) < usual.sum()).all())
    odd[np.flatnonzero(odd)[~evaluates]] = False
    are_alike = _are_alike(plain, usual) and float(evaluates.mean()) >= _WHOLE
    return _apart(record, begins, usual, odd) if whole and are_alike else None


def _are_alike(steps: Ints, usual: Ints) -> bool:
    """Whether steps have the calls of a usual one, or, as the rest of an epoch has, each kind of them and none more often."""
    rests = (steps <= usual).all(axis=1) & ((steps > 0) == (usual > 0)).all(axis=1)
    return float((steps == usual).all(axis=1).mean()) >= _WHOLE and float(rests.mean()) >= _ALIKE


def evaluations_apart(record: Record, begins: Ints, forms: int) -> Ints:
    """The begins of steps, with each evaluation between two of them as a stretch of its own; `forms` counts forms of calls.

    An evaluation that has no call of its own makes some of those of a step once more, each time the same. Steps of a larger
    batch do so too, but follow on each other, or are the newest.
    """
    if len(begins) <= _LEAST_STEPS:
        return begins
    counted = _counted(record, begins, forms)
    if (counted == counted[-1]).all():
        return begins
    shapes, which, often = np.unique(counted, axis=0, return_inverse=True, return_counts=True)
    usual = shapes[often.argmax()]
    more = counted - usual
    odd: Flags = (more >= 0).all(axis=1) & (more > 0).any(axis=1) & ((more == 0) & (usual > 0)).any(axis=1)
    odd &= ~((more > 0) & (usual == 0)).any(axis=1) & (more.sum(axis=1) < usual.sum())
    are_alike = len(np.unique(which[odd])) == 1 and odd[:-1].any() and not (odd[1:] & odd[:-1]).any()
    return _apart(record, begins, usual, odd) if are_alike and often.max() >= _LEAST_STEPS else begins


def _grown(counted: Ints, usual: Ints, odd: Flags) -> int:
    """How many steps come before the first usual one in which a batch grows: the same calls as in it, none more often."""
    first = int((~odd & (counted == usual).all(axis=1)).argmax())
    lead = counted[:first][~odd[:first]]
    grows = (lead <= usual).all() and ((lead > 0) == (usual > 0)).all() and (np.diff(lead, axis=0) >= 0).all()
    return first if grows else 0


def _apart(record: Record, begins: Ints, usual: Ints, odd: Flags) -> Ints:
    """The begins, with each evaluation as a stretch of its own where the calls of a usual step follow on all of them.

    Calls that end a step behind the last one that all ranks make, such as a gather of parameters, then stand before it.
    """
    size = int(usual.sum())
    for later in range(int(_MOST_BEHIND * size) + 1):
        end = begins[1:][odd] + later
        end = end[end <= len(record)]
        tails = np.column_stack([end - size, end]).ravel()
        if len(end) and (_counted(record, tails, len(usual))[::2] == usual).all():
            moved = begins + later
            return np.sort(np.append(moved[moved <= len(record)], end - size))
    return begins


def _next_rarest(record: Record, rare: Flags, counts: Ints) -> int | None:
    """The form of call, of those of all ranks that are not rare, that recurs least often; the last of a run of such."""
    joint = ~record.is_message & ~record.is_barrier & (record.members == record.members.max())
    forms = np.unique(record.form[joint])
    forms = forms[~rare[forms] & (counts[forms] > counts[rare].max())]
    least = forms[counts[forms] == counts[forms].min(initial=np.iinfo(np.int64).max)]
    last = {int(form): int(np.flatnonzero(record.form == form)[-1]) for form in least.tolist()}
    return max(last, key=last.__getitem__) if last else None


def _counted(record: Record, begins: Ints, forms: int) -> Ints:
    """How often each step (row) has each form of calls (column), those of barriers left out: a save has some in any step."""
    steps = max(len(begins) - 1, 0)
    calls = slice(*begins[[0, -1]]) if steps else slice(0)
    cells = np.repeat(np.arange(steps), np.diff(begins)) * forms + record.form[calls]
    return np.bincount(cells[~record.is_barrier[calls]], minlength=steps * forms).reshape(steps, forms)
