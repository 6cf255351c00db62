"""Synchronous jobs on paper: each rank works through its stages, and all leave the backward pass together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.matrix import Column, StageMatrix
from forensics.rules.reductions.frontier.verdicts import FrontierWindow, WindowVerdict, judge

ORDER = ("data", "forward", "backward", "callbacks", "optimizer")
USUAL_MS = {"data": 5.0, "forward": 60.0, "backward": 100.0, "callbacks": 4.0, "optimizer": 20.0, "other": 2.0}
MS = 1e6


def matrix(durations: object, **fields: Any) -> StageMatrix:
    """A matrix without times, from `[step, stage, rank]` in ms; the walls close exactly."""
    values = np.array(durations, dtype=np.float64) * MS
    steps, stages, ranks = values.shape
    names = ("data", "backward") if stages == 2 else ORDER[:stages]
    defaults: dict[str, Any] = {
        "group": "all ranks",
        "role": None,
        "source": "paper",
        "steps": np.arange(steps),
        "ranks": tuple(range(ranks)),
        "columns": tuple(Column(name) for name in names),
        "durations": values,
        "walls": values.sum(axis=1),
        "begins": np.zeros((steps, ranks), dtype=np.int64),
        "ends": None,
    }
    return StageMatrix(**(defaults | fields))


def job(
    slow: str | None = None,
    *,
    rank: int = 3,
    delay_ms: float = 120.0,
    ranks: int = 8,
    steps: int = 120,
    when: Callable[[int], bool] = lambda _: True,
    who: Callable[[int], Any] | None = None,
    seed: int = 0,
    arrivals: bool = False,
    one_clock: bool = True,
    absorbed: bool = False,
) -> StageMatrix:
    """A job whose `slow` stage takes longer on one rank (or on those of `who`) in the steps of `when`.

    `absorbed`: the device runs behind the host and sets the length of a step, so that the host's delay costs nobody anything.
    """
    chance = np.random.default_rng(seed)
    now = np.zeros(ranks)
    durations, ends = np.zeros((steps, len(ORDER), ranks)), np.zeros((steps, len(ORDER), ranks))
    walls, begins, own = np.zeros((steps, ranks)), np.zeros((steps, ranks)), np.zeros((steps, ranks))
    met = 0.0

    def work(stage: str, step: int) -> Any:
        took = USUAL_MS[stage] * MS * (1 + 0.03 * chance.standard_normal(ranks)).clip(0.5)
        if stage == slow and when(step):
            took[who(step) if who else rank] += delay_ms * MS * (1 + 0.05 * chance.standard_normal())
        return np.asarray(took)

    for step in range(steps):
        begins[step] = now
        for place, stage in enumerate(ORDER):
            before = now.copy()
            now = now + work(stage, step)
            if stage == "backward":
                own[step] = now - before
                device = met + 400 * MS * (1 + 0.02 * float(chance.standard_normal())) if absorbed else 0.0
                met = max(float(now.max()) + 15 * MS, device)
                now = met + chance.random(ranks) * 0.2 * MS
            durations[step, place], ends[step, place] = now - before, now
        now = now + work("other", step)
        walls[step] = now - begins[step]
    skew = np.zeros(ranks) if one_clock else chance.random(ranks) * 1e12
    return StageMatrix(
        group="all ranks",
        role=None,
        source="paper",
        steps=np.arange(steps),
        ranks=tuple(range(ranks)),
        columns=tuple(Column(name) for name in ORDER),
        durations=durations,
        walls=walls,
        begins=(begins + skew).astype(np.int64),
        ends=(ends + skew).astype(np.int64),
        arrived={"backward": own} if arrivals else None,
        one_clock=one_clock,
    )


def judged(found: StageMatrix, **gates: float) -> WindowVerdict:
    return judge(FrontierWindow(found), Gates(**gates))


def labels(found: StageMatrix) -> set[str]:
    return {label for label, _, _ in judged(found).examined.labels}


def blamed(found: StageMatrix) -> list[tuple[str, tuple[int, ...]]]:
    return [(culprit.stage, culprit.ranks) for culprit in judged(found).attribution.culprits]
