"""Judged windows as rows of the verdict: rounded, in plain numbers."""

from __future__ import annotations

import numpy as np

from forensics.model import AttributionRow, FrontierRow, Label, LeaderRow, LossRow, StageName
from forensics.rules.reductions.frontier.culprits import Attribution
from forensics.rules.reductions.frontier.labels import Leader
from forensics.rules.reductions.frontier.losses import Culprit
from forensics.rules.reductions.frontier.verdicts import WindowVerdict


def frontier_row(judged: WindowVerdict) -> FrontierRow:
    """The row of a window; shares have four decimals, times are whole nanoseconds."""
    matrix, found = judged.matrix, judged.examined
    return FrontierRow(
        group=matrix.group,
        role=matrix.role,
        source=matrix.source,
        first_step=int(matrix.steps[0]),
        last_step=int(matrix.steps[-1]),
        steps=len(matrix.steps),
        ranks=matrix.ranks,
        stages=found.stages,
        advances_ns=tuple(round(value) for value in found.advances_ns),
        exposed_ns=round(found.exposed_ns),
        parts=tuple((stage, part, round(advance)) for stage, part, advance in found.parts),
        shares=None if found.shares is None else _shares(found.shares),
        gains=_shares(found.gains),
        gains_by_baseline=tuple((name, _shares(values)) for name, values in found.gains_by_baseline.items()),
        routing_set=found.routing_set,
        ambiguity_set=found.ambiguity_set,
        labels=found.labels,
        leader=None if found.leader is None else _leader(found.leader),
        closure=round(found.closure, 4),
        overlap=round(found.overlap, 4),
        missing_ranks=matrix.missing,
        event_ready=None if found.event_ready is None else round(found.event_ready, 4),
        excess_ns=_excess(judged),
        attribution=_attribution(judged.attribution),
    )


_AXES = {
    "telemetry_limited": "telemetry",
    "role_aware_needed": "roles",
    "co_critical": "ambiguity",
    "gradient_accumulation_ambiguous": "ambiguity",
    "sync_wait_dependent": "model_fit",
    "likely_sync_wait": "model_fit",
    "direct_exposure": "direct_gain",
}


def frontier_labels(rows: tuple[FrontierRow, ...]) -> tuple[Label, ...]:
    """Labels of the windows beyond the accounting itself, each once; of a window with a change, those of the time since."""
    stages = set(StageName)
    latest = {(row.group, row.role, row.source, row.last_step): row for row in rows}
    found = [
        Label(name, _AXES.get(name, "device"), reason, StageName(stage) if stage in stages else None)
        for row in latest.values()
        for name, stage, reason in row.labels
        if name != "frontier_accounting"
    ]
    return tuple(dict.fromkeys(found))


def _shares(values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(round(value, 4) for value in values)


def _leader(leader: Leader) -> LeaderRow:
    return LeaderRow(leader.ranks, round(leader.lag_ns), round(leader.delta_lag_ns), round(leader.gap_ns), leader.switches)


def _attribution(found: Attribution) -> AttributionRow:
    losses = tuple(_loss(culprit) for culprit in found.culprits)
    return AttributionRow(
        found.sync, found.method, found.waits, found.steps, round(found.step_ns), found.onset, losses, found.reason
    )


def _loss(culprit: Culprit) -> LossRow:
    return LossRow(
        culprit.stage,
        culprit.substage,
        culprit.ranks,
        round(culprit.lost_ns),
        round(culprit.share, 4),
        culprit.affected,
        round(culprit.typical_ns),
        culprit.baseline,
        culprit.pattern,
    )


def _excess(judged: WindowVerdict) -> tuple[tuple[int, ...], ...]:
    """Mean excess over the median of the peers, by rank and broad stage."""
    matrix, whole = judged.matrix, judged.cut
    columns = whole.columns if whole is not None else matrix.columns
    values = whole.work if whole is not None else matrix.durations
    over = np.maximum(values - np.median(values, axis=2, keepdims=True), 0.0).mean(axis=0)
    rows = np.zeros((len(matrix.ranks), len(judged.examined.stages)))
    for place, stage in enumerate(judged.examined.stages):
        mine = [index for index, column in enumerate(columns) if column.stage == stage]
        rows[:, place] = over[mine].sum(axis=0) if mine else 0.0
    return tuple(tuple(round(value) for value in row) for row in rows.tolist())
