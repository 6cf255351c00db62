"""Small simulated cases for the writers below the operations, made once."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from forensics.fixtures.simulator.bundle import options_of
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import MS, Model, Noise, Parallelism, TrainingJob
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.fixtures.simulator.writers.interface import Options
from tests.unit.simulator.small_jobs import crossing_leaves

JOB = TrainingJob(
    "lower", Parallelism(tensor=2, pipeline=2, data=3), Model(4, 4 * MS, 4 << 20, 96 << 20), microbatches=2, gpus_per_host=2,
    gradient_buckets=2, noise=Noise(oddities=0),
)  # fmt: skip


@cache
def case(fault: str, seed: int = 3) -> tuple[Simulation, Options]:
    """A case with a few iterations; one that moves is looked at near its end."""
    wanted = parse(fault)
    job = crossing_leaves(JOB) if wanted.kind.place == "leaf" else JOB
    made = simulate(job, [wanted], seed, iterations=6, after_s=120.0)
    if not made.hung:
        made = replace(made, capture_ns=float(made.run.ends[-1].min()) - 1.0)
    return made, options_of(made)
