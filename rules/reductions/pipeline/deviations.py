"""From which call on a step of a rank went another way than its usual one."""

from __future__ import annotations

import numpy as np

from forensics.rules.reductions.steps.records import UNKNOWN, Flags, Ints, Record

Span = tuple[int, int]
"""The calls of a step: the first of them, and the one after its last."""


def first_difference(record: Record, usual: Span, made: Span) -> int | None:
    """The place in the usual step (from 0) of the first call that a step made otherwise; None where it did all alike.

    A call left out, or made too much, among calls that look alike shows where their run ends, which may be passes later. Where
    the call paths from some call up to there are those of the usual step moved by one, it is that call.
    """
    shared = min(usual[1] - usual[0], made[1] - made[0])
    differs = np.flatnonzero(_columns(record.form, usual, shared) != _columns(record.form, made, shared))
    if not len(differs):
        return None
    at = int(differs[0])
    moved = max(_moved(record, usual, made, at, 1, 0), _moved(record, usual, made, at, 0, 1))
    return at - moved


def _moved(record: Record, usual: Span, made: Span, at: int, ahead: int, behind: int) -> int:
    """How many calls before `at` have the form and call path of the usual step moved by one, and another path unmoved."""
    begin = np.arange(at)
    one, other = usual[0] + begin + ahead, made[0] + begin + behind
    alike = _same(record, one, other) & (record.form[one] == record.form[other])
    run = int(np.argmin(alike[::-1])) if not alike.all() else at
    stays = _same(record, usual[0] + begin, made[0] + begin)
    apart = np.flatnonzero(~stays[at - run :])
    return run - int(apart[0]) if len(apart) else 0


def _same(record: Record, one: Ints, other: Ints) -> Flags:
    known = record.call_path[one] != UNKNOWN
    same: Flags = known & (record.call_path[one] == record.call_path[other])
    return same


def _columns(column: Ints, span: Span, length: int) -> Ints:
    return column[span[0] : span[0] + length]
