"""A rank that works longer than the ranks with the same work: those of its stage in other replicas, or all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forensics.case.call_store import calls_table
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import MS, Parallelism
from forensics.fixtures.simulator.simulation import simulate
from forensics.rules.engine import supply_of
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.layout import Layout
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
        found = supply_of(connection).get(OwnWork)
    assert (found.found, found.compared, found.seldom_longest) == ((), frozenset(), frozenset({0, 1, 3}))


IN_STEP = replace(JOB, parallel=Parallelism(tensor=4, pipeline=1, data=4))


def test_those_in_step_with_a_rank_that_works_longer_wait_for_it(tmp_path: Path) -> None:
    with case_of(simulate(IN_STEP, [parse("gpu-throttled@rank6:250")], 3, iterations=14), tmp_path, timing=True) as connection:
        assert [item.rank for item in supply_of(connection).get(OwnWork).found] == [6]


@pytest.mark.slow
def test_less_time_in_collectives_beside_computation_is_no_longer_work(tmp_path: Path) -> None:
    """Reductions of rank 5 end sooner than those of its equals: its links are the faster ones."""
    with case_of(simulate(IN_STEP, [], 3, iterations=30), tmp_path, timing=True) as connection:
        layout = supply_of(connection).get(Layout)
        beside = [label for label in layout.along(Axis.DATA) if 5 in layout.members[label]]
        connection.execute(
            f"UPDATE {calls_table(connection)} SET duration_ns = duration_ns + 3e8 WHERE rank <> 5 AND duration_ns IS NOT NULL "
            "AND communicator IN (SELECT unnest($labels))", {"labels": list(layout.along(Axis.DATA))},
        )  # fmt: skip
        assert beside and supply_of(connection).get(OwnWork).found == ()
