"""Small jobs, quick to run, for the tests of the simulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from forensics.fixtures.simulator.engine import Run, run
from forensics.fixtures.simulator.job import MS, NO_NOISE, Model, Parallelism, Rates, TrainingJob
from forensics.fixtures.simulator.physics import Deviation, Fault, Physics
from forensics.fixtures.simulator.topology import HOSTS_OF_A_LEAF

SILENT = NO_NOISE
FREE = Rates(nic=1e30, nvlink=1e30, step_latency_ns=0.0, host_op_ns=0.0)

DENSE = TrainingJob(
    "dense", Parallelism(tensor=2, pipeline=2, data=4), Model(4, 20 * MS, 8 << 20, 1 << 30), microbatches=4, gpus_per_host=4
)
PIPELINE = TrainingJob(
    "pipeline", Parallelism(pipeline=4), Model(4, 10 * MS, 1 << 20, 1 << 20, embedding=0.0, head=0.0), microbatches=6,
    gradient_norm=False, data_ns=0.0, optimizer_ns=0.0, callbacks_ns=0.0, noise=SILENT, rates=FREE,
)  # fmt: skip


def quiet(job: TrainingJob) -> TrainingJob:
    """The job without any noise."""
    return replace(job, noise=SILENT)


def run_with(
    job: TrainingJob, *faults: Fault, deviations: tuple[Deviation, ...] = (), iterations: int = 3, seed: int = 1
) -> Run:
    """A run that keeps everything."""
    return run(job, Physics(job, np.random.default_rng(seed), faults, deviations), iterations, iterations)


def crossing_leaves(job: TrainingJob) -> TrainingJob:
    """The job on more hosts than a leaf switch has: on fewer no fault of a leaf can be put in."""
    replica = job.parallel.tensor * job.parallel.pipeline
    return replace(job, parallel=replace(job.parallel, data=-(-(HOSTS_OF_A_LEAF + 1) * job.gpus_per_host // replica)))
