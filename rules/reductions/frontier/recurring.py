"""Which ranks cost the group time again and again, and whether chance lets equal ranks do so."""

from __future__ import annotations

import math

import numpy as np

from forensics.rules.reductions.frontier.accounting import Flags, Floats
from forensics.rules.reductions.frontier.gates import Gates

_CHANCE = 0.05
"""That equal ranks cause so many steps."""
_LEAST_PART = 1e-9


def causes_of(excess: Floats, columns: list[int], affected: Flags, lost: Floats, gates: Gates) -> Flags:
    """Which ranks cause which rows (rows x ranks): of several that are late together, those that come near the last."""
    over = excess[:, columns].sum(axis=1)
    near = over >= gates.cause_share * over.max(axis=1, keepdims=True)
    causes: Flags = affected[:, None] & near & (over >= gates.cause_share * lost[:, None]) & (over > 0)
    return causes


def recurring(causes: Flags, affected: Flags, gates: Gates) -> Flags:
    """Ranks that cause most of the affected rows; none when the ranks change or all are alike."""
    chosen: Flags = causes.sum(axis=0) >= max(gates.recurrence * affected.sum(), min(gates.repeats, len(affected)))
    return chosen if 2 * chosen.sum() <= len(chosen) else np.zeros_like(chosen)


def beyond_chance(causes: Flags, affected: Flags, chosen: Flags) -> Flags:
    """Those of the chosen ranks that cause more of the affected rows, each and together, than chance lets equal ranks do."""
    rows, ranks = int(affected.sum()), causes.shape[1]
    often = causes.sum(axis=0)
    tails = chance_of_at_least(rows, float(often.sum()) / (rows * ranks))[often]
    rare: Flags = chosen & (tails <= _CHANCE)
    by_chance = math.comb(ranks, int(rare.sum())) * float(tails[rare].prod())
    return rare if by_chance <= _CHANCE else np.zeros_like(rare)


def chance_of_at_least(rows: int, chance: float) -> Floats:
    """Probability that one rank causes 0, 1, ... or more of the rows, where it causes each with this chance (binomial)."""
    odds = [math.log(min(max(part, _LEAST_PART), 1.0)) for part in (chance, 1 - chance)]
    choices = [math.lgamma(rows + 1) - math.lgamma(count + 1) - math.lgamma(rows - count + 1) for count in range(rows + 1)]
    each = np.exp([log + count * odds[0] + (rows - count) * odds[1] for count, log in enumerate(choices)])
    above: Floats = each[::-1].cumsum()[::-1]
    return above
