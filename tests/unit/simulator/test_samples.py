"""A simulated collection samples as often as a real one, and a job that moves is seen to."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import replace

import pytest

from forensics.collect.target import Settings
from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.simulation import simulate
from tests.unit.simulator.small_jobs import DENSE

# Queues of CUDA hold about a thousand launches, and an operation of the model stands for tens of them. No look is lost.
JOB = replace(DENSE, ahead=16, noise=replace(DENSE.noise, oddities=0.0))
_LOOK = re.compile(r"ranks/(\d+)/(stacks|proc)/(\d+)\.json\Z")


def samples(fault: str, seed: int = 2) -> dict[tuple[int, str], list[bytes]]:
    made = simulate(JOB, [parse(fault)], seed, after_s=8.0)
    kept = losses.drawn(JOB.parallel.world, made.random("losses"), only=("stacks", "processes"))
    found: dict[tuple[int, str], list[bytes]] = defaultdict(list)
    for path, content in bundle.members(made, bundle.options_of(made), kept):
        if match := _LOOK.match(path):
            assert int(match[3]) == len(found[int(match[1]), match[2]])
            found[int(match[1]), match[2]].append(content)
    return found


def switches(sample: bytes) -> int:
    thread = json.loads(sample)["processes"][0]["threads"][0]
    return int(thread["voluntary_switches"])


@pytest.fixture(scope="module")
def moving() -> dict[tuple[int, str], list[bytes]]:
    return samples("none")


def test_stacks_and_threads_are_looked_at_as_often_as_collect_does(moving: dict[tuple[int, str], list[bytes]]) -> None:
    assert moving.keys() == {(rank, kind) for rank in range(JOB.parallel.world) for kind in ("stacks", "proc")}
    assert {len(found) for found in moving.values()} == {Settings().samples}


def test_a_job_that_moves_is_seen_to(moving: dict[tuple[int, str], list[bytes]]) -> None:
    for (_, kind), found in moving.items():
        if kind == "proc":
            counts = [switches(sample) for sample in found]
            assert counts == sorted(set(counts))


@pytest.mark.slow
def test_hosts_of_a_job_that_moves_are_found_at_several_places(moving: dict[tuple[int, str], list[bytes]]) -> None:
    """Three looks may meet a small job at one call by chance, so several jobs are looked at."""
    jobs = (samples("none", 1), moving, samples("none", 3))
    found = [looks for job in jobs for (_, kind), looks in job.items() if kind == "stacks"]
    assert sum(len({*looks}) > 1 for looks in found) > 0.4 * len(found)


def test_a_host_that_hangs_is_found_at_one_place_in_all_looks() -> None:
    found = samples("process-stopped@rank3")
    assert len({*found[3, "stacks"]}) == 1
    assert len({switches(sample) for sample in found[3, "proc"]}) == 1
