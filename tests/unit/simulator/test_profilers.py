"""A process has one profiler, for a few steps; which one, and how long, does not depend on the fault."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.profilers import active_steps, profiled
from forensics.fixtures.simulator.simulation import simulate
from tests.unit.simulator.small_jobs import DENSE

SMALL = replace(DENSE, parallel=replace(DENSE.parallel, data=2), microbatches=2)


@pytest.mark.parametrize("gpus", [SMALL.gpus_per_host // 2, SMALL.gpus_per_host])
def test_no_rank_has_two_profilers(gpus: int) -> None:
    job, both = replace(SMALL, gpus_per_host=gpus), ("kineto", "nsight")
    for seed in range(20):
        found = profiled(job, seed, both)
        assert found["kineto"] and found["nsight"] and not found["kineto"] & found["nsight"]
        assert len(found["kineto"]) + len(found["nsight"]) == job.parallel.world
        below = {job.host_of(rank) for rank in found["nsight"]} & {job.host_of(rank) for rank in found["kineto"]}
        assert job.hosts == 1 or not below


@pytest.mark.parametrize("name", ["kineto", "nsight"])
def test_a_profiler_alone_is_on_all_ranks(name: str) -> None:
    assert profiled(SMALL, 1, {name, "shim"}) == {name: frozenset(range(SMALL.parallel.world))}


def test_a_bundle_has_one_trace_a_rank_at_most() -> None:
    made = simulate(SMALL, [parse("gpu-throttled@random")], 3, iterations=4)
    kept = losses.drawn(SMALL.parallel.world, np.random.default_rng(1), only=("kineto,nsight",))
    found = defaultdict(list)
    for path, _ in bundle.members(made, bundle.options_of(made), kept):
        if match := re.match(r"ranks/(\d+)/traces/", path):
            found[int(match[1])].append(path)
    assert sorted(found) == list(range(SMALL.parallel.world))
    assert {len(paths) for paths in found.values()} == {1}
    assert {path.rpartition(".")[2] for paths in found.values() for path in paths} == {"gz", "sqlite"}


def test_windows_have_few_steps_with_a_fault_as_without() -> None:
    drawn = {active_steps(np.random.default_rng(seed)) for seed in range(50)}
    assert drawn == {1, 2, 3}
    sound, faulty = (simulate(SMALL, [parse(fault)], 3, iterations=4) for fault in ("none", "gpu-throttled@random"))
    assert bundle.options_of(sound).traced_steps == bundle.options_of(faulty).traced_steps
