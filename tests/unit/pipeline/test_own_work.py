"""A rank without tensor-parallel peers that works longer than the ranks of its stage in other replicas."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import MS, Parallelism
from forensics.fixtures.simulator.simulation import simulate
from forensics.rules.engine import supply_of
from forensics.rules.reductions.pipeline.own_work import OwnWork
from tests.unit.pipeline.simulated import case_of
from tests.unit.simulator.small_jobs import DENSE

JOB = replace(DENSE, parallel=Parallelism(tensor=1, pipeline=2, data=4), model=replace(DENSE.model, forward_ns=60 * MS))


@pytest.mark.parametrize(("fault", "ranks"), [("gpu-throttled@rank6:250", [6]), ("none", [])])
def test_who_works_longer_than_its_equals_is_found(fault: str, ranks: list[int], tmp_path: Path) -> None:
    made = simulate(JOB, [parse(fault)] if fault != "none" else [], 3, iterations=14)
    with case_of(made, tmp_path, timing=True) as connection:
        found = supply_of(connection).get(OwnWork)
    assert found.compared == frozenset(range(8))
    assert [item.rank for item in found.found] == ranks


def test_without_times_inside_calls_nobody_is_compared(tmp_path: Path) -> None:
    made = simulate(JOB, [parse("gpu-throttled@rank6:250")], 3, iterations=14)
    with case_of(made, tmp_path, timing=False) as connection:
        assert supply_of(connection).get(OwnWork) == OwnWork()


def test_ranks_alone_with_their_data_are_not_compared(tmp_path: Path) -> None:
    job = replace(JOB, parallel=Parallelism(data=4))
    with case_of(simulate(job, [parse("gpu-throttled@rank2:250")], 3, iterations=14), tmp_path, timing=True) as connection:
        assert supply_of(connection).get(OwnWork) == OwnWork()
