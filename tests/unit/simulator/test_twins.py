"""A run with faults and the run without: the same noise, the same past, and nothing that depends on what is asked first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forensics.fixtures.simulator.engine import Engine, finish
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.newest import Newest
from forensics.fixtures.simulator.physics import Moment, Physics
from forensics.fixtures.simulator.program import program
from forensics.fixtures.simulator.recording import Run
from forensics.fixtures.simulator.simulation import generator, simulate
from tests.unit.simulator.small_jobs import DENSE


def times(run: Run) -> list[bytes]:
    every = ((each.issued, each.began, each.ended) for each in run.recordings)
    return [run.begins.tobytes(), run.ends.tobytes(), *(values.tobytes() for three in every for values in three)]


@pytest.mark.parametrize(
    "fault", ["host-hang", "nic-slow@rank5:30%+lasting", "gpu-throttled@rank1:200W+lasting", "skipped-collective"]
)
def test_a_run_that_begins_where_its_fault_does_is_the_one_from_the_start(fault: str) -> None:
    made = simulate(DENSE, [parse(fault)], 7, iterations=6, onset=3)
    effects = [replace(effect, onset_ns=float("inf")) for effect in made.effects]
    deviations = [deviation for injection in made.injections for deviation in injection.deviations]
    physics = Physics(made.job, generator(7, "physics"), effects, deviations)
    count = len(made.run.ends)
    whole = finish(Engine(made.job, physics, count), count)
    assert times(whole) == times(made.run)


@pytest.mark.parametrize(
    "fault", ["nic-slow@rank5:30%+growing", "compute-delay@rank3:400ms", "gpu-throttled@rank1:200W+recovering"]
)
def test_both_are_alike_until_the_fault(fault: str) -> None:
    made = simulate(DENSE, [parse(fault)], 7, iterations=6, onset=3)
    assert made.run.ends[:3].tolist() == made.reference.ends[:3].tolist()
    assert made.run.ends[3:].tolist() != made.reference.ends[3 : len(made.run.ends)].tolist()


def test_the_noise_of_an_operation_is_the_same_whatever_was_asked_before() -> None:
    ops, at = program(DENSE, 1, 0), np.zeros(DENSE.parallel.width)
    numbers = [number for number, op in enumerate(ops) if op.kind == "kernel"][::7]
    asked = []
    for order in (numbers, numbers[::-1]):
        physics = Physics(DENSE, np.random.default_rng(3))
        places = {number: Moment(1, 0, number, ops[number]) for number in order}
        asked.append({
            number: (physics.kernel(where, at).tolist(), physics.host(where, at, 1e6).tolist(), physics.jitter(where).tolist())
            for number, where in places.items()
        })  # fmt: skip
    assert asked[0] == asked[1]
    kernels = [tuple(found[0]) for found in asked[0].values()]
    assert len(set(kernels)) == len(kernels)


def test_the_newest_values_stay_and_older_ones_make_room() -> None:
    kept = Newest[str](10)
    for iteration in (2, 1, 3):
        kept.put((iteration, 0, 0), str(iteration), 4)
    assert [kept.get((iteration, 0, 0)) for iteration in (1, 2, 3)] == [None, "2", "3"]
    kept.put((0, 0, 0), "0", 4)
    assert kept.get((0, 0, 0)) is None and kept.get((2, 0, 0)) == "2"
    kept.put((9, 0, 0), "whole", 11)
    assert kept.get((9, 0, 0)) is None
