"""What the two thresholds of slow passes do (VenusTrace, figure 14): `python -m tests.accuracy.thresholds`.

Simulated jobs in which a pass of one rank takes longer once, by 20 ms to 3 s, or in which nothing happens; dumps alone, with
times inside calls. Positive is an iteration that became slower by a ninth; found is a late pass of the rank's group on the
critical path. What it finds is written to `TABLE`, which docs/accuracy.md quotes.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from forensics.case.build import open_case
from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import Parallelism, TrainingJob
from forensics.fixtures.simulator.presets import PRESETS
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.fixtures.simulator.truth import truth
from forensics.rules.engine import supply_of
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.pipeline.critical_path import judged
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.pipeline.slow_steps import SlowStep, dated_steps
from forensics.rules.reductions.steps.times import StepTimes

GATES = (0.98, 0.95, 0.9, 0.8, 0.65)
M_NODES = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
SHAPES = ((2, 4, 2), (1, 4, 4), (2, 2, 4))
SCHEDULES: tuple[Literal["1f1b", "gpipe", "interleaved"], ...] = ("1f1b", "gpipe", "interleaved")
TABLE = Path(__file__).with_name("thresholds.md")
_SOUND = 0.25


@dataclass(frozen=True, slots=True)
class Case:
    """One job: whether an iteration became slower, through whom, and its dated steps, each with the ns beyond a usual one."""

    is_slower: bool
    ranks: frozenset[int]
    usual_ns: float
    steps: tuple[tuple[float, SlowStep], ...]

    def found(self, gate: float, m_node: float) -> tuple[frozenset[int], ...]:
        """The ranks of each late pass."""
        slow = [step for excess, step in self.steps if (self.usual_ns + excess) * gate > self.usual_ns]
        return tuple(
            frozenset(step.ranks(node))
            for step in slow
            for node in judged(step.graph, step.durations, step.expected, m_node, lags=step.lags).late.tolist()
        )


def job_of(random: np.random.Generator) -> TrainingJob:
    shape, schedule = SHAPES[random.integers(len(SHAPES))], SCHEDULES[random.integers(len(SCHEDULES))]
    chunks, base = (2 if schedule == "interleaved" else 1), PRESETS["venustrace"]
    parallel = Parallelism(tensor=shape[0], pipeline=shape[1], data=shape[2])
    model = replace(base.model, layers=shape[1] * 2 * chunks)
    return replace(base, parallel=parallel, schedule=schedule, chunks=chunks, model=model, microbatches=8)


def simulated(seed: int) -> Simulation:
    random = np.random.default_rng(seed)
    job, delay_ms = job_of(random), np.exp(random.uniform(np.log(20), np.log(3000)))
    way = ("forward", "backward")[random.integers(2)]
    fault = "none" if random.random() < _SOUND else f"compute-delay:{delay_ms:.0f}ms/{way}"
    return simulate(job, [parse(fault)], seed, iterations=14)


def case(seed: int) -> Case:
    made = simulated(seed)
    kept = losses.drawn(made.job.parallel.world, made.random("losses"), only=("recorder",))
    stated = truth(made, kept)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bundle.tar"
        bundle.write(made, bundle.options_of(made, ring=8000, timing=True), kept, path)
        with open_case([path]) as connection:
            supply = supply_of(connection, {})
            times = supply.get(StepTimes)
            slow = times.long(GATES[0])
            found = dated_steps(times, supply.get(Layout), supply.get(CallPlaces), slow).found
    ranks = frozenset(rank for fault in stated["faults"] for rank in fault["ranks"])
    excess = dict(slow)
    return Case(bool(stated["degraded"]), ranks, times.typical_ns, tuple((excess[step.number], step) for step in found))


def table(cases: list[Case]) -> Iterator[str]:
    slower = sum(each.is_slower for each in cases)
    yield f"{len(cases)} jobs, {slower} of them with an iteration that was slower; recall / precision:"
    yield ""
    yield "| slow below | " + " | ".join(f"m_node {m_node:g}" for m_node in M_NODES) + " |"
    yield "|---" * (len(M_NODES) + 1) + "|"
    for gate in GATES:
        yield f"| {gate:.0%} | " + " | ".join(cell(cases, gate, m_node) for m_node in M_NODES) + " |"


def cell(cases: list[Case], gate: float, m_node: float) -> str:
    """Recall by iterations that were slower, precision by ranks that were named."""
    hits = named = right = slower = 0
    for each in cases:
        found = each.found(gate, m_node)
        hit = each.is_slower and any(each.ranks & ranks for ranks in found)
        slower, hits = slower + each.is_slower, hits + hit
        for ranks in set(found):
            named, right = named + 1, right + bool(each.is_slower and each.ranks & ranks)
    return f"{hits / max(slower, 1):.2f} / {right / max(named, 1):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--seed", type=int, default=14)
    given = parser.parse_args()
    cases = [case(given.seed * 1000 + number) for number in range(given.cases)]
    TABLE.write_text("\n".join(table(cases)) + "\n", encoding="utf-8")
    print(TABLE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
