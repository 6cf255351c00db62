"""Ranks that are late in turn: one for some steps, another one for others, so that none of them is late in most.

Guests, heat and the placement of work move, and with them the rank that is slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from forensics.rules.reductions.frontier.accounting import Flags, Floats
from forensics.rules.reductions.frontier.cut import Cut
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.losses import Culprit, affected_rows, against, beyond_peers, columns_of, lost_to
from forensics.rules.reductions.frontier.onsets import STARTS
from forensics.rules.reductions.frontier.recurring import causes_of, chance_of_at_least
from forensics.rules.reductions.onset import warmed_up

_CHANCE = 0.01
"""That one of equal ranks is late so often within so few rows, wherever these lie."""
_LEAST_ROWS = 5  # that somebody causes in a turn: what comes less often is no state that lasts
_HEAVY, _UPPER = 0.5, 0.75  # of the upper quarter of what it costs in a row: less is jitter beside it
_LITTLE = 0.2  # of what it costs, outside of its turn
_PART = 0.8  # of the rows: what goes on for longer than that is there all the time
_ALL_BUT = 0.5  # of the affected rows: where turns leave less than that, ranks do not change from step to step


def with_turns(found: Cut, rows: slice, culprits: list[Culprit], gates: Gates) -> list[Culprit]:
    """Culprits beside ranks that are late in turn, in rows for which none of their stage is named.

    A loss to changing ranks of which turns leave little is theirs. A rank that is late for some steps has these as its turn.
    """
    first, last, _ = rows.indices(len(found.steps))
    known = list(culprits)
    for stage in dict.fromkeys(column.stage for column in found.columns):
        causes, affected, lost = _causes(found, slice(first, last), stage, gates)
        known = [_dated(each, found, first, causes, lost, gates) if each.stage == stage else each for each in known]
        named = np.isin(found.ranks, [rank for each in known if each.stage == stage for rank in each.ranks])
        left = affected & ~causes[:, named].any(axis=1)
        spans = list(_spans(causes, left.copy(), gates))
        turns = [turn for span in spans if (turn := _turn(found, first, last, span, stage, gates)) is not None]
        rest = left.sum() - sum(turn.affected for turn in turns)
        is_theirs = bool(turns) and rest < _ALL_BUT * left.sum()
        known = [each for each in known if not (is_theirs and each.stage == stage and each.changing)] + turns
    return known


def before_change(found: Cut, onset: int, known: list[Culprit], gates: Gates) -> list[Culprit]:
    """Ranks that were late in turn before steps became lastingly longer, those of the start and known ones left out."""
    warm, named = warmed_up(found.lengths[:onset], STARTS), {(each.stage, each.ranks) for each in known}
    before = with_turns(found, slice(warm, onset), [], gates) if onset - warm >= 2 * _LEAST_ROWS else []
    return [each for each in before if (each.stage, each.ranks) not in named]


def _causes(found: Cut, rows: slice, stage: str, gates: Gates) -> tuple[Flags, Flags, Floats]:
    """Which ranks cause which rows of a stage, which rows lose by them, and how much, against peers."""
    work, columns = found.work[rows], columns_of(found, stage)
    excess = beyond_peers(work)
    lost, _ = lost_to(found, work, excess, columns)
    affected = affected_rows(lost, float(np.median(found.lengths[rows])), gates)
    return causes_of(excess, columns, affected, lost, gates), affected, lost


def _spans(causes: Flags, left: Flags, gates: Gates) -> Iterator[slice]:
    """Rows in each of which one rank causes most of what is left, the surest first; takes them out of what is left."""
    rows, ranks = causes.shape
    usual = float(causes[left].sum()) / max(ranks * int(left.sum()), 1)
    while left.sum() >= _LEAST_ROWS:
        spans = [_densest(np.where(left, causes[:, rank] - gates.recurrence, 0.0)) for rank in range(ranks)]
        counts = [int((causes[span, rank] & left[span]).sum()) for rank, span in enumerate(spans)]
        best = int(np.argmax(counts))
        tails = chance_of_at_least(int(left[spans[best]].sum()), usual)
        if counts[best] < _LEAST_ROWS or rows * ranks * float(tails[counts[best]]) > _CHANCE:
            return
        yield spans[best]
        left[spans[best]] = False


def _densest(weights: Floats) -> slice:
    """The rows in a row with the largest sum (Kadane), begun and ended by a weight above zero."""
    sums = np.append(0.0, weights.cumsum())
    rises = sums - np.minimum.accumulate(sums)
    end = int(rises.argmax())
    begin = end - int(sums[: end + 1][::-1].argmin())
    return slice(begin, end)


def _turn(found: Cut, first: int, last: int, span: slice, stage: str, gates: Gates) -> Culprit | None:
    """Who is late in a stage within some rows, as part of all of them; None where that costs no material part of these."""
    rows = slice(first + span.start, first + span.stop)
    costs = (each for each in against(found, rows, gates, "peers", None) if each.stage == stage and each.ranks)
    cost = next(costs, None)
    if cost is None or cost.share < gates.stage_share:
        return None
    share = cost.lost_ns / float(found.lengths[first:last].sum())
    return _with_turn(replace(cost, share=share, steps=last - first), found, rows)


def _dated(culprit: Culprit, found: Cut, first: int, causes: Flags, lost: Floats, gates: Gates) -> Culprit:
    """A culprit with its turn, where what it costs goes on from one row to another one and is little in the others."""
    if not culprit.ranks or culprit.baseline != "peers" or culprit.pattern.startswith("every"):
        return culprit
    own = np.where(causes[:, np.isin(found.ranks, culprit.ranks)].any(axis=1), lost, 0.0)
    heavy = own >= _HEAVY * np.quantile(own[own > 0], _UPPER) if own.any() else own > 0
    span = _densest(np.asarray(heavy - gates.throughout, dtype=np.float64))
    outside = own.sum() - own[span].sum()
    if heavy[span].sum() < _LEAST_ROWS or outside > _LITTLE * own.sum() or span.stop - span.start > _PART * len(own):
        return culprit
    return _with_turn(culprit, found, slice(first + span.start, first + span.stop))


def _with_turn(culprit: Culprit, found: Cut, rows: slice) -> Culprit:
    turn = int(found.steps[rows.start]), int(found.steps[rows.stop - 1])
    return replace(culprit, turn=turn, pattern=f"steps {turn[0]} to {turn[1]}")
