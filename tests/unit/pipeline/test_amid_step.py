"""Whether a rank stopped amid a step: between its passes, that is, and not before the first or behind the last one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import create_autospec

import pytest

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import Parallelism
from forensics.fixtures.simulator.simulation import simulate
from forensics.rules.diagnosis import diagnose
from forensics.rules.reductions.pipeline.amid_step import amid_step
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.steps.records import Recorded
from forensics.rules.reductions.waits.graph import Wait, WaitGraph
from tests.unit.pipeline.simulated import case_of
from tests.unit.simulator.small_jobs import DENSE

JOB = replace(DENSE, parallel=Parallelism(tensor=2, pipeline=4, data=2))


@pytest.mark.parametrize(
    ("fault", "seed", "amid"),
    [("host-hang@rank8/forward", 3, True), ("callback-stall@rank8", 3, False), ("dataloader-stall@rank0", 3, False)],
    ids=["in a pass", "behind the step", "before its first pass"],
)
def test_only_between_passes_of_one_step(fault: str, seed: int, amid: bool, tmp_path: Path) -> None:
    made = simulate(JOB, [parse(fault)], seed, iterations=5, onset=3)
    rank = made.injections[0].ranks[0]
    graph = create_autospec(WaitGraph, instance=True, recorded=(Wait("", 0, {}, (rank,)),))
    with case_of(made, tmp_path) as connection:
        assert set(amid_step(graph, CallPlaces(connection, Recorded(connection)))) == ({rank} if amid else set())


def test_who_has_the_whole_model_may_evaluate_between_any_two_calls(tmp_path: Path) -> None:
    made = simulate(replace(JOB, parallel=Parallelism(data=4)), [parse("host-hang@rank0/backward")], 3, iterations=5, onset=3)
    graph = create_autospec(WaitGraph, instance=True, recorded=(Wait("", 0, {}, (0,)),))
    with case_of(made, tmp_path) as connection:
        assert not amid_step(graph, CallPlaces(connection, Recorded(connection)))


@pytest.mark.slow
def test_a_first_rank_of_a_host_that_works_between_two_passes_is_named(tmp_path: Path) -> None:
    """What a first rank does for all, such as an evaluation, it does between steps."""
    seeds = (seed for seed in range(1, 60) if _stops_before_a_message(seed))
    made = simulate(JOB, [parse("host-hang@rank8/forward")], next(seeds), iterations=5, onset=3)
    with case_of(made, tmp_path, sources=("recorder", "stacks", "processes")) as connection:
        found = diagnose(connection)
    assert [each.ranks for each in found.suspects] == [(8,)]


def _stops_before_a_message(seed: int) -> bool:
    position = simulate(JOB, [parse("host-hang@rank8/forward")], seed, iterations=5, onset=3).injections[0].position
    return position is not None and position.op.kind == "recv" and (position.op.microbatch or 0) > 0
