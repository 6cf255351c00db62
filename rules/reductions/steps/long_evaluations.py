"""Evaluations in which ranks were inside calls for much longer than in the others: no step is long, and the job not sound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from forensics.rules.reductions.steps.begins import step_begins, usual_step
from forensics.rules.reductions.steps.records import UNKNOWN, Record
from forensics.rules.reductions.steps.times import Floats, StepTimes

_LEAST, _MOST_RECORDS = 3, 8
# Of a usual step, and times as long as the other evaluations.
_OF_A_STEP, _LONGER = 0.33, 2.0


def evaluation_signs(times: StepTimes) -> Iterator[str]:
    """Say that one is long, where half of some ranks were inside its calls for longer; a save behind it is in none of these."""
    known = [found for steps in [*times.ranks.values()][:_MOST_RECORDS] if len(found := _inside(steps.record))]
    count = min(map(len, known), default=0)
    if not count:
        return
    inside = np.median([each[-count:] for each in known], axis=0)
    longest, usual = float(inside.max()), float(np.median(inside))
    if longest - usual >= _OF_A_STEP * times.typical_ns and longest >= _LONGER * usual:
        yield f"ranks were {longest / 1e6:.0f} ms inside calls of an evaluation, {usual / 1e6:.0f} ms in the others"


def _inside(record: Record) -> Floats:
    """ns inside calls of each evaluation: the stretches between steps that have the same fewer calls, and no barrier."""
    begins = step_begins(record)
    usual = usual_step(record, begins)
    if record.is_marked or usual is None:
        return np.empty(0)
    bounds = list(zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True))
    fewer = [each for each in bounds if each[1] - each[0] < usual[1] - usual[0] and not record.is_barrier[slice(*each)].any()]
    forms = [tuple(np.sort(record.form[slice(*each)]).tolist()) for each in fewer]
    chosen, often = Counter(forms).most_common(1)[0] if forms else ((), 0)
    inside = [record.duration_ns[slice(*each)] for each, form in zip(fewer, forms, strict=True) if form == chosen]
    if often < _LEAST or any((each == UNKNOWN).any() for each in inside):
        return np.empty(0)
    return np.array([each.sum() for each in inside], np.float64)
