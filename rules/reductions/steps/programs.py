"""What the records of ranks with the same program have in common, found once for all of them.

Of a large job thousands of ranks make the same calls in the same order. Where their steps begin, and which of these are alike,
follows from the calls alone but where steps are told apart by time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from forensics.rules.reductions.steps.begins import step_cut, usual_step
from forensics.rules.reductions.steps.records import Ints, Record

Places = npt.NDArray[np.int32]

# As few as half of the steps may have one length where microbatches differ.
_SHOWN_BY = 2


@dataclass(frozen=True, slots=True)
class Program:
    """Places in the records of some ranks.

    `begins` are those of the first call of each step, `index` says which steps have the calls of a usual one, and `order`
    (such steps x calls) has the places of these, so that column k is the same call in each. `by_form`: calls of one form are
    taken for one call, because microbatches differ in length.
    """

    begins: Ints
    index: Ints
    order: Places
    by_form: bool

    def of(self, record: Record) -> Record:
        """The record of one of the ranks, with its calls distinguished as here."""
        return replace(record, token=record.form) if self.by_form else record


def programs(found: Mapping[int, Record]) -> dict[int, Program]:
    """The program of each rank."""
    known: dict[bytes, Program] = {}
    of_ranks: dict[int, Program] = {}
    for rank, record in found.items():
        key = _key(record)
        if key in known:
            of_ranks[rank] = known[key]
            continue
        of_ranks[rank], by_time = _program(record)
        if not by_time:
            known[key] = of_ranks[rank]
    return of_ranks


def _key(record: Record) -> bytes:
    """A digest of what the calls of a record are, whenever they were made."""
    digest = blake2b(digest_size=16)
    for column in (record.token, record.form, record.members, record.is_message, record.is_barrier):
        digest.update(column.tobytes())
    if record.is_marked:
        digest.update(record.step.tobytes())
    return digest.digest()


def _program(record: Record) -> tuple[Program, bool]:
    cut = step_cut(record)
    usual = usual_step(record, cut.begins)
    if usual is None:
        none = np.empty(0, np.int64)
        return Program(cut.begins, none, np.empty((0, 0), np.int32), by_form=False), cut.by_time
    by_token = _alike(record, cut.begins, usual)
    by_form = replace(record, token=record.form)
    forms = by_token if np.array_equal(record.token, record.form) else _alike(by_form, cut.begins, usual)
    is_by_form = _SHOWN_BY * len(by_token) < len(forms)
    record, index = (by_form, forms) if is_by_form else (record, by_token)
    calls = _calls(cut.begins[index], usual[1] - usual[0])
    # Half as wide as a place might be: of a large job it is as long as all calls.
    order = np.asarray(np.argsort(record.token[calls], axis=1, kind="stable") + cut.begins[index][:, None], np.int32)
    return Program(cut.begins, index, order, is_by_form), cut.by_time


def _alike(record: Record, begins: Ints, usual: tuple[int, int]) -> Ints:
    """Which steps have the calls of a usual one, in any order, and no call behind them that no usual step has.

    What no usual step has (the barrier of a checkpoint) follows on work that is of none.
    """
    shape = np.sort(record.token[slice(*usual)])
    index = np.flatnonzero(np.diff(begins) == len(shape))
    index = index[(np.sort(record.token[_calls(begins[index], len(shape))], axis=1) == shape).all(axis=1)]
    end = begins[index + 1]
    is_last = end == len(record)
    found: Ints = index[is_last | np.isin(record.token[np.where(is_last, 0, end)], shape)]
    return found


def _calls(begin: Ints, count: int) -> Ints:
    """Places of the calls of steps of one length."""
    return begin[:, None] + np.arange(count)
