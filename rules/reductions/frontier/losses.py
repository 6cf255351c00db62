"""What a stage cost the group in some rows of a window, and the ranks that caused it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from forensics.rules.reductions.frontier.absorbed import is_absorbed
from forensics.rules.reductions.frontier.accounting import Flags, Floats
from forensics.rules.reductions.frontier.cut import Cut
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.recurring import beyond_chance, causes_of, recurring

_FEWEST = 2  # rows that may name somebody, when all of them do
_LEAST_LOST_NS = 2e5  # of one step: less is what a turn of the scheduler may cost


@dataclass(frozen=True, slots=True)
class Culprit:
    """A stage that cost the group time, and the ranks it did so on (empty: on all, or on changing ones).

    `lost_ns` is the recoverable time over all steps (without these ranks' excess alone), `share` its part of their time,
    `affected` of `steps` steps lost a material part. `baseline` is what it was compared with: peers, history (the steps before
    `onset`), or usual (its own median). `pattern` is how the affected steps are spread; `device` marks device time of the stage
    as the evidence, `tied` a loss that is only won together with those of other ranks. `turn` are the first and the last step
    of a loss to ranks that goes on for some steps only, None where it is not known to.
    """

    stage: str
    substage: str | None
    ranks: tuple[int, ...]
    lost_ns: float
    share: float
    affected: int
    steps: int
    typical_ns: float
    baseline: str
    pattern: str
    changing: bool = False
    onset: int | None = None
    device: bool = False
    tied: bool = False
    turn: tuple[int, int] | None = None

    @property
    def begins(self) -> int | None:
        """Since when it costs time: the first step of its turn, else the one from which steps are longer."""
        return self.turn[0] if self.turn else self.onset


def against(
    found: Cut, rows: slice, gates: Gates, baseline: str, reference: Floats | None, onset: int | None = None
) -> Iterator[Culprit]:
    """Stages that cost the group a material part of its time in some rows, beyond a baseline, and the ranks that recur."""
    work, lengths = found.work[rows], found.lengths[rows]
    excess = beyond_peers(work) if reference is None else np.maximum(work - reference, 0.0)
    usual = float(np.median(lengths))
    for stage in dict.fromkeys(column.stage for column in found.columns):
        columns = columns_of(found, stage)
        lost, without = lost_to(found, work, excess, columns)
        affected = affected_rows(lost, usual, gates)
        share = float(lost[affected].sum()) / float(lengths.sum())
        is_lasting = len(lost) >= _FEWEST and bool(affected.all()) and share >= gates.share_from_start
        is_large = affected.sum() >= gates.repeats and share >= gates.stage_share
        if affected.sum() < gates.least_steps and not (is_large or is_lasting):
            continue
        time_ns = float(lengths.sum())
        named = None if baseline == "usual" else _named(found, work, excess, columns, affected, lost, time_ns, gates)
        ranks, own, share_of_ranks = named or ((), lost, share)
        pattern = pattern_of(affected, gates)
        if (not ranks and share < gates.stage_share) or is_absorbed(lost, lengths - without, usual, gates):
            continue
        if baseline == "usual" and not pattern.startswith("every"):
            continue  # half of the steps are above the median, and a busy host slows some of them
        if baseline == "peers" and not ranks and affected.sum() < gates.least_steps:
            continue  # somebody is always last, and in few steps it may cost much
        part = _substage(found, excess, columns, affected)
        total = float(own[affected].sum())
        seen = (total, share_of_ranks, int(affected.sum()), len(lost), float(np.median(own[affected])))
        yield Culprit(stage, part, ranks, *seen, baseline, pattern, not ranks and baseline == "peers", onset)


def beyond_peers(work: Floats) -> Floats:
    """What each rank takes beyond the middle one of its row, in each column."""
    return np.asarray(np.maximum(work - np.median(work, axis=2, keepdims=True), 0.0))


def columns_of(found: Cut, stage: str) -> list[int]:
    """Places of the columns of a stage."""
    return [index for index, column in enumerate(found.columns) if column.stage == stage]


def affected_rows(lost: Floats, usual: float, gates: Gates) -> Flags:
    """Rows that lost a material part of the usual one."""
    return np.asarray(lost >= max(gates.excess_share * usual, _LEAST_LOST_NS))


def lost_to(found: Cut, work: Floats, excess: Floats, columns: list[int]) -> tuple[Floats, Floats]:
    """Time each row loses, and the arrivals without it: the last arrival in every segment, and the last one less the excess."""
    lost, rest = np.zeros(len(work)), np.zeros(len(work))
    for segment in found.segments:
        mine = [index for index in columns if segment.start <= index < segment.stop]
        total = work[:, segment].sum(axis=1)
        without = (total - excess[:, mine].sum(axis=1)).max(axis=1)
        lost += total.max(axis=1) - without
        rest += without
    return lost, rest


def _named(
    found: Cut, work: Floats, excess: Floats, columns: list[int], affected: Flags, lost: Floats, time_ns: float, gates: Gates
) -> tuple[tuple[int, ...], Floats, float] | None:
    """Ranks that cause most of the affected rows, what each row would win without them alone, and its part of the time.

    Of many equal ones somebody is always last, and the next one is without him. Whose lag is small causes more rows than chance
    lets any of them.
    """
    causes = causes_of(excess, columns, affected, lost, gates)
    chosen = recurring(causes, affected, gates)
    if not chosen.any():
        return None
    own, share = _won(found, work, excess * chosen, columns, affected, time_ns)
    least = gates.share_from_start
    if share < least:
        chosen, least = beyond_chance(causes, affected, chosen), gates.rank_share
        own, share = _won(found, work, excess * chosen, columns, affected, time_ns)
    ranks = tuple(rank for rank, is_one in zip(found.ranks, chosen.tolist(), strict=True) if is_one)
    return (ranks, own, share) if ranks and share >= least else None


def _won(found: Cut, work: Floats, excess: Floats, columns: list[int], affected: Flags, time_ns: float) -> tuple[Floats, float]:
    """What each row would win without an excess, and the part of the time that the affected ones do."""
    own = lost_to(found, work, excess, columns)[0]
    return own, float(own[affected].sum()) / time_ns


def pattern_of(affected: Flags, gates: Gates) -> str:
    """throughout, every n-th step, or now and then."""
    rows = np.nonzero(affected)[0]
    if len(rows) >= gates.throughout * len(affected):
        return "throughout"
    gaps = np.diff(rows)
    if len(gaps) >= 2 and (gaps == gaps[0]).mean() >= gates.periodic and gaps[0] > 1:
        return f"every {int(gaps[0])} steps"
    return "now and then"


def _substage(found: Cut, excess: Floats, columns: list[int], affected: Flags) -> str | None:
    """The part of a refined stage with most of the excess."""
    by_column = {index: float(excess[affected][:, index].max(axis=1).sum()) for index in columns}
    first = max(by_column, key=by_column.__getitem__)
    return found.columns[first].substage or None
