"""The critical path of the slowest step as rows of the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from forensics.model import CriticalPathRow, PassRow, PathRank
from forensics.rules.reductions.pipeline.call_place import WORDS
from forensics.rules.reductions.pipeline.delay import Delays
from forensics.rules.reductions.pipeline.on_path import agreeing
from forensics.rules.reductions.pipeline.slow_steps import SlowStep, SlowSteps

_MOST_PASSES = 4096


def critical_path_row(slow: SlowSteps, delays: Delays) -> CriticalPathRow | None:
    """The path through the slowest step whose passes could be dated, and agree with its calls; None without one."""
    found = agreeing(slow, delays).found
    if not found:
        return None
    worst = max(found, key=lambda step: (step.judged.times.makespan, -step.number))
    times = worst.judged.times
    path = sorted(np.flatnonzero(times.critical()).tolist(), key=lambda node: (times.earliest_start[node], node))
    longest_part, _ = worst.part(path[-1])
    shown = [node for node in range(worst.graph.size) if worst.part(node)[0] is longest_part]
    return CriticalPathRow(
        nodes=tuple(pass_row(worst, node) for node in path),
        absorbed=tuple(pass_row(worst, node) for node in worst.absorbed()),
        makespan_ns=round(times.makespan),
        expected_makespan_ns=round(worst.expected_makespan),
        recoverable_ns=round(worst.judged.recoverable),
        step=worst.number,
        steps=len(found),
        pipelines=slow.pipelines,
        late_in=late_in(found),
        passes=tuple(pass_row(worst, node) for node in shown) if len(shown) <= _MOST_PASSES else (),
    )


def pass_row(step: SlowStep, node: int) -> PassRow:
    """One pass of a step."""
    part, own = step.part(node)
    return PassRow(
        ranks=step.ranks(node),
        stage=int(part.stage[own]),
        model_chunk=part.place(own).chunk,
        microbatch=int(part.microbatch[own]),
        direction=WORDS[int(part.direction[own])],
        begin_ns=round(float(step.judged.times.earliest_start[node])),
        duration_ns=round(float(step.durations[node])),
        expected_ns=round(float(step.expected[node])),
        slack_ns=round(float(step.judged.times.slack[node])),
        is_late=node in step.judged.late,
        clock="kernel" if step.by_arrivals.isdisjoint(step.ranks(node)) else "arrivals",
    )


def late_in(found: Sequence[SlowStep]) -> tuple[PathRank, ...]:
    """In how many slow steps each stage of a pipeline was late on the critical path; most often first."""
    steps: Counter[tuple[int, ...]] = Counter()
    for step in found:
        steps.update({step.ranks(node) for node in step.judged.late.tolist()})
    return tuple(PathRank(ranks, number) for ranks, number in sorted(steps.items(), key=lambda each: (-each[1], each[0])))
