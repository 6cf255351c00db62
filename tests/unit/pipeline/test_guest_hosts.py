"""A host is named by guests on its GPUs and by longer work of its ranks together; neither names it alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import MS, Parallelism
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.rules.engine import supply_of
from forensics.rules.reductions.hardware.causes import Hardware, Oddity, Sign
from forensics.rules.reductions.pipeline.guest_hosts import GuestHosts
from tests.unit.pipeline.simulated import case_of
from tests.unit.simulator.small_jobs import DENSE

JOB = replace(DENSE, gpus_per_host=4, parallel=Parallelism(tensor=2, pipeline=4, data=2))
JOB = replace(JOB, model=replace(JOB.model, forward_ns=60 * MS))
SLOW = "background-compute@node1:50%+lasting"


def guests(ranks: Iterable[int]) -> Hardware:
    return Hardware({rank: (Sign(Oddity.SHARED, f"a guest of rank {rank}", f"smi.xml#{rank}", 2.0),) for rank in ranks})


def found(made: Simulation, folder: Path, shared: Iterable[int]) -> list[tuple[int, ...]]:
    with case_of(made, folder, timing=True) as connection:
        return [each.ranks for each in supply_of(connection, instead={Hardware: guests(shared)}).get(GuestHosts)]


@pytest.mark.parametrize(
    ("fault", "shared", "ranks"),
    [
        (SLOW, range(4, 8), [(4, 5, 6, 7)]),
        (SLOW, range(4, 7), [(4, 5, 6, 7)]),
        (SLOW, (), []),
        (SLOW, (4, 5), []),
        (SLOW, range(8, 12), []),
        (SLOW, range(12), []),
        ("", range(4, 8), []),
        ("", range(8, 12), []),
        ("", range(4), []),
        ("", range(12, 16), []),
    ],
    ids=[
        "both", "on nearly all", "longer work alone", "on half of them", "guests elsewhere", "guests on most hosts",
        "idle guests", "of another stage", "of the first stage", "of the last stage",
    ],
)  # fmt: skip
@pytest.mark.first(3)
def test_guests_and_longer_work_name_a_host_together(
    fault: str, shared: Iterable[int], ranks: list[tuple[int, ...]], tmp_path: Path
) -> None:
    made = simulate(JOB, [parse(fault)] if fault else [], 3, iterations=14)
    assert found(made, tmp_path, shared) == ranks
