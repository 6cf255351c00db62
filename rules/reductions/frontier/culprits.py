"""Which stage, and when it recurs which rank, the group's step time was lost to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from forensics.rules.reductions.frontier.accounting import Flags, Floats
from forensics.rules.reductions.frontier.cut import Cut
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.losses import Culprit, against, beyond_peers, columns_of, lost_to, pattern_of
from forensics.rules.reductions.frontier.matrix import RESIDUAL, StageMatrix
from forensics.rules.reductions.frontier.onsets import LEAST_REFERENCE, onset_row
from forensics.rules.reductions.frontier.turns import before_change, with_turns

EVERYWHERE = "unknown"
"""Stage of a loss that is in no stage more than in the others."""
_FEW = 5  # of more rows than this the first is left out: it warms up
_FEWEST = 2  # rows that may name somebody, when all of them do
_STAGES = 3  # that became longer alike, before no single one is where the cause is
_GREW = 0.5  # of a loss: who cost the group more than that before the change is not what changed
_SAMPLED = 0.5  # of the device times that others have: who has fewer is left out of the comparison
_ALIKE, _MOST_ALIKE = 0.5, 0.25  # of the longest excess, and of all ranks: more of them are no exception


@dataclass(frozen=True, slots=True)
class Attribution:
    """Where the group's time went, by our reading: from meeting to meeting, without waiting.

    `step_ns` is the usual time from one meeting to the next; `reason` says why there is no attribution. `accounted` is the part
    of what steps became longer by at the onset that the culprits explain, None without an onset.
    """

    sync: str | None
    method: str | None
    waits: str | None
    steps: int
    step_ns: float
    culprits: tuple[Culprit, ...]
    onset: int | None = None
    reason: str | None = None
    accounted: float | None = None


def attribute(matrix: StageMatrix, found: Cut | str, gates: Gates, since: int | None = None) -> Attribution:
    """Name stages, and ranks that recur, by the time that the group would have saved.

    `since`: the step from which steps are lastingly longer, as a longer record shows it.
    """
    if isinstance(found, str):
        return Attribution(None, None, None, len(matrix.steps), float(np.median(matrix.walls)), (), reason=found)
    # The first step of a run pays for start-up, whatever its stages do.
    onset = onset_row(found, gates, since)
    first = onset if onset is not None else int(len(found.lengths) > _FEW)
    rows = slice(first, None)
    culprits = with_turns(found, rows, [*against(found, rows, gates, "peers", None)], gates)
    named = {culprit.stage for culprit in culprits}
    if onset is not None:
        reference = np.median(found.work[:onset], axis=0, keepdims=True)
        step = int(found.steps[onset])
        culprits = [replace(culprit, onset=step) if _grew(found, culprit, onset) else culprit for culprit in culprits]
        longer = [c for c in against(found, rows, gates, "history", reference, step) if c.stage not in named]
        longer = longer if onset >= LEAST_REFERENCE else []
        culprits += [_everywhere(found, onset, gates)] if longer and _is_everywhere(found, onset, gates) else longer
        culprits += before_change(found, onset, culprits, gates)
    else:
        usual = np.median(found.work[rows], axis=0, keepdims=True)
        culprits += [c for c in against(found, rows, gates, "usual", usual) if c.stage not in named]
    culprits = culprits or _tied(found, rows, gates)
    culprits = _with_device(matrix.since(int(found.steps[first])), culprits, gates, float(np.median(found.lengths[rows])))
    return Attribution(
        sync=found.sync,
        method=found.method,
        waits=found.waits,
        steps=len(found.steps[rows]),
        step_ns=float(np.median(found.lengths[rows])),
        culprits=tuple(sorted(culprits, key=lambda c: (-c.lost_ns, c.stage, c.ranks))),
        onset=None if onset is None else int(found.steps[onset]),
        accounted=None if onset is None else _accounted(found, onset, culprits),
    )


def _accounted(found: Cut, onset: int, culprits: list[Culprit]) -> float:
    """Part of the time beyond the usual step before the onset that is lost to the culprits."""
    grown = float(np.maximum(found.lengths[onset:] - np.median(found.lengths[:onset]), 0.0).sum())
    lost = sum(culprit.lost_ns for culprit in culprits)
    return min(1.0, lost / grown) if grown > 0 else 1.0


def _is_everywhere(found: Cut, onset: int, gates: Gates) -> bool:
    """Whether every stage that counts became longer to a similar degree: then none of them is where the cause is."""
    before, after = (np.median(np.median(rows, axis=0), axis=1) for rows in (found.work[:onset], found.work[onset:]))
    stages = np.array([column.stage for column in found.columns])
    parts = np.array([[each[stages == stage].sum() for each in (before, after)] for stage in dict.fromkeys(stages.tolist())])
    counts = parts[parts[:, 0] >= gates.excess_share * before.sum()]
    grown = after.sum() / before.sum() - 1
    return len(counts) >= _STAGES and bool((counts[:, 1] / counts[:, 0] - 1 >= grown / 2).all())


def _everywhere(found: Cut, onset: int, gates: Gates) -> Culprit:
    """All stages of all ranks longer since a row (StageFrontier section 6.6, unlocalized slowdowns)."""
    rows = found.lengths[onset:]
    lost = np.maximum(rows - np.median(found.lengths[:onset]), 0.0)
    share, affected = float(lost.sum() / rows.sum()), int((lost > 0).sum())
    seen = (float(lost.sum()), share, affected, len(rows), float(np.median(lost)))
    pattern = pattern_of(lost > 0, gates)
    return Culprit(EVERYWHERE, None, (), *seen, "history", pattern, onset=int(found.steps[onset]))


def _grew(found: Cut, culprit: Culprit, onset: int) -> bool:
    """Whether a loss to ranks that are later than their peers came with the change: others are late from the begin on."""
    work = found.work[:onset]
    columns = columns_of(found, culprit.stage)
    own = np.isin(found.ranks, culprit.ranks) if culprit.ranks else np.ones(len(found.ranks), bool)
    excess = np.where(own, beyond_peers(work), 0.0)
    return float(np.median(lost_to(found, work, excess, columns)[0])) < _GREW * culprit.typical_ns


def _tied(found: Cut, rows: slice, gates: Gates) -> list[Culprit]:
    """Delays of several ranks side by side: none alone would win time, each does when the others are taken out.

    StageFrontier section 4 calls such stages co-critical.
    """
    excess = found.excess
    culprits: list[Culprit] = []
    for stage in dict.fromkeys(column.stage for column in found.columns):
        others = np.array([column.stage != stage for column in found.columns])
        alone = replace(found, work=found.work - excess * others[:, None])
        own = (culprit for culprit in against(alone, rows, gates, "peers", None) if culprit.stage == stage)
        culprits += [replace(culprit, tied=True) for culprit in own if culprit.ranks]
    return culprits if len({culprit.ranks for culprit in culprits}) > 1 else []


def _with_device(matrix: StageMatrix, culprits: list[Culprit], gates: Gates, usual: float) -> list[Culprit]:
    """Work of the device that shows on the host in a later stage goes back to the stage and rank that launched it.

    Few steps, as traces have, accuse nobody by that alone. Of several stages the longest is the one.
    """
    late = sorted(_device_excess(matrix, gates, usual), key=lambda each: each[1][1])
    for stage, (ranks, excess, samples) in late:
        is_named = any({*ranks} & {*culprit.ranks} for culprit in culprits) or samples >= gates.event_samples
        if not is_named or any(culprit.stage == stage and {*ranks} <= {*culprit.ranks} for culprit in culprits):
            continue
        hidden = [c for c in culprits if {*c.ranks} <= {*ranks}]
        count = len(matrix.steps)
        share, onset = excess / usual, next((c.onset for c in hidden if c.baseline == "history"), None)
        seen = (excess * count, share, samples, count, excess)
        moved = Culprit(stage, None, ranks, *seen, "peers", "throughout", onset=onset, device=True)
        culprits = [culprit for culprit in culprits if culprit not in hidden or culprit.stage in ("data", RESIDUAL)] + [moved]
    return culprits


def _device_excess(matrix: StageMatrix, gates: Gates, usual: float) -> Iterator[tuple[str, tuple[tuple[int, ...], float, int]]]:
    """Stages whose device time is materially longer on one rank, or some alike, than on their peers, at most samples."""
    device: Mapping[str, Floats] = matrix.device or {}
    for stage, values in device.items():
        # A rank whose times are lost hides nothing of the others.
        there = np.isfinite(values).mean(axis=0) >= _SAMPLED * np.isfinite(values).mean(axis=0).max(initial=0.0)
        values, ranks = values[:, there], [rank for rank, known in zip(matrix.ranks, there.tolist(), strict=True) if known]
        sampled = np.isfinite(values).all(axis=1)
        asked, is_few = matrix.asked.get(stage), sampled.sum() < gates.event_samples
        ready = float(np.isfinite(values).sum()) / asked if asked else 1.0
        # Traces hold every kernel of their few steps, where samples are some of many.
        if sampled.sum() < (gates.event_samples if asked else _FEWEST) or ready < gates.event_ready:
            continue
        over = values[sampled] - np.median(values[sampled], axis=1, keepdims=True)
        usually = np.median(over, axis=0)
        late, excess = _alike(usually), float(usually.max())
        often = float((over[:, late].min(axis=1) > over[:, ~late].max(axis=1, initial=-np.inf)).mean())
        if excess >= gates.rank_share * usual and often >= (1.0 if is_few else gates.recurrence):
            yield (
                stage,
                (tuple(rank for rank, is_one in zip(ranks, late.tolist(), strict=True) if is_one), excess, int(sampled.sum())),
            )


def _alike(excess: Floats) -> Flags:
    """The rank with the most excess, and those with half of that or more, where these are few."""
    late: Flags = np.asarray(excess >= _ALIKE * excess.max())
    return late if late.sum() <= _MOST_ALIKE * len(excess) else np.asarray(np.arange(len(excess)) == excess.argmax())
