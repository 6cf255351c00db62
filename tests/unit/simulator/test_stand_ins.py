"""What stands in for a call that a rank left out: its proxy offers buffers for it, and its GPU takes nothing of what comes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from forensics.case.build import open_case
from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import MS, Model, Parallelism, TrainingJob
from forensics.fixtures.simulator.network import Network
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.fixtures.simulator.sources import USUAL
from forensics.fixtures.simulator.stand_ins import shown_as
from forensics.fixtures.simulator.transfers import Transfer, transfers
from forensics.model import Cause
from forensics.rules.diagnosis import diagnose

JOB = TrainingJob(
    "apart", Parallelism(pipeline=2, data=2), Model(4, 20 * MS, 8 << 20, 1 << 30), microbatches=2, gpus_per_host=1
)


@cache
def case(seed: int, microbatches: int = 2) -> Simulation:
    job = replace(JOB, microbatches=microbatches)
    return simulate(job, [parse("skipped-collective@random")], seed, iterations=8, onset=4)


def open_transfers(made: Simulation) -> list[Transfer]:
    found = transfers(Network(made.run, made.effects, made.capture_ns, made.seed), made.capture_ns - 1e9, made.capture_ns)
    return [each for each in found if np.isinf(each.end) and each.op.peer is None]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_data_for_the_call_that_was_left_out_arrives_and_is_not_taken(seed: int) -> None:
    made = case(seed)
    (odd,) = made.injections[0].ranks
    (waits,) = [
        each
        for each in open_transfers(made)
        if shown_as(made.run, odd, each.iteration, _number(made, each, odd))[0] > each.iteration
    ]
    slices, to_odd = waits.slices, waits.slices.lanes.receiver == odd
    filled = np.isfinite(slices.ready[:, to_odd])
    assert filled.any() and (np.isfinite(slices.received[:, to_odd]) == filled).all()
    assert np.isinf(slices.consumed[:, to_odd]).all() and np.isinf(slices.ready[:, slices.lanes.sender == odd]).all()


def _number(made: Simulation, transfer: Transfer, rank: int) -> int:
    return transfer.numbers[made.run.job.parallel.stage_of(rank)[0]]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_credit_is_given_that_the_other_end_does_not_see(seed: int, tmp_path: Path) -> None:
    """Nothing is wrong with the network: the rank is named for its calls, by logs of the collector alone."""
    made = case(seed)
    path = tmp_path / "bundle.tar"
    kept = losses.Losses(sources=USUAL - {"recorder", "stacks", "processes", "logs", "counters"} | {"shim"})
    bundle.write(made, bundle.options_of(made), kept, path)
    first = diagnose(open_case([path])).suspects[0]
    assert (first.ranks, first.cause) == (made.injections[0].ranks, Cause.EXTRA_OR_MISSING_COLLECTIVE)
