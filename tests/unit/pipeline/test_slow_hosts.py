"""Hosts of which every pass is long are named, several at once too; what slows a rank, or most hosts, names none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import MS, Parallelism
from forensics.fixtures.simulator.simulation import simulate
from forensics.model import Confidence, Outcome
from forensics.rules.diagnosis import diagnose
from forensics.rules.engine import supply_of
from forensics.rules.reductions.pipeline.slow_hosts import HostsByPasses
from tests.unit.pipeline.simulated import case_of
from tests.unit.simulator.small_jobs import DENSE

JOB = replace(DENSE, gpus_per_host=4, parallel=Parallelism(tensor=2, pipeline=4, data=2))
JOB = replace(JOB, model=replace(JOB.model, forward_ns=60 * MS))
FIRST, SECOND, FOURTH = (0, 1, 2, 3), (4, 5, 6, 7), (12, 13, 14, 15)


@pytest.mark.parametrize(
    ("faults", "hosts"),
    [
        (["background-compute@node1:50%+lasting", "background-compute@node3:50%+lasting"], [SECOND, FOURTH]),
        (["background-compute@node1:50%+lasting"], [SECOND]),
        (["background-compute@node0:50%+lasting"], [FIRST]),
        ([f"background-compute@node{host}:50%+lasting" for host in (0, 1, 3)], []),
        (["gpu-throttled@rank6:250"], []),
        ([], []),
    ],
    ids=["two", "one", "the first", "most", "one GPU", "sound"],
)
def test_hosts_are_slow_whose_ranks_all_work_longer(
    faults: Sequence[str], hosts: list[tuple[int, ...]], tmp_path: Path
) -> None:
    made = simulate(JOB, [parse(fault) for fault in faults], 3, iterations=14)
    with case_of(made, tmp_path, timing=True) as connection:
        found = supply_of(connection).get(HostsByPasses)
    assert [each.ranks for each in found.found] == hosts
    assert all(each.factor > 1.3 for each in found.found)


@pytest.mark.parametrize(
    ("nodes", "named"), [((1, 3), {SECOND, FOURTH}), ((0,), {FIRST})], ids=["two stages", "the first stage"]
)
def test_all_ranks_of_a_slow_host_are_named(nodes: Sequence[int], named: set[tuple[int, ...]], tmp_path: Path) -> None:
    """Of the first stage some ranks are seen to hold up steps as well: they are not named once more."""
    faults = [parse(f"background-compute@node{host}:50%+lasting") for host in nodes]
    with case_of(simulate(JOB, faults, 3, iterations=14), tmp_path, timing=True) as connection:
        verdict = diagnose(connection)
    assert verdict.outcome is Outcome.SLOWDOWN
    assert {suspect.ranks for suspect in verdict.suspects} == named
    assert {suspect.confidence for suspect in verdict.suspects} == {Confidence.SUSPECT}
