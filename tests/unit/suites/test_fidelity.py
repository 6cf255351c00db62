"""Methods on whole operators come to their published levels on simulated jobs: if they do not, the simulator is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from forensics.fixtures.simulator.job import MS, Model, Parallelism, TrainingJob
from forensics.fixtures.suites.interface import Draw
from forensics.fixtures.suites.nic import CELLS, GPT, KINDS, LEVELS, MOE, Kind, drawn
from tests.benchmarks import fidelity

PAGE = Path(__file__).parents[3] / "docs" / "simulator.md"
PLACES = {
    "cpu-throttling": "node1", "cpu-contention": "node1", "numa-crossed": "node1", "background-traffic": "link:node1-node2",
}  # fmt: skip
# Two pipeline stages of two hosts with four GPUs; gradients go when the backward passes are over.
SMALL = TrainingJob(
    "small", Parallelism(tensor=4, pipeline=2, data=2), Model(4, 40 * MS, 8 << 20, 3 << 30), microbatches=2, gpus_per_host=4,
    data_mode="zero2", gradient_buckets=1,
)  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "level"),
    [
        ("gpu-throttled@rank5:200W+lasting", "machine"),
        pytest.param("cpu-contention@node0:100%+lasting", "misjudged", marks=pytest.mark.slow),
        pytest.param("pcie-nic@rank1:20%+lasting", "group", marks=pytest.mark.slow),
        pytest.param("none", "nobody", marks=pytest.mark.slow),
    ],
)
def test_a_small_job_shows_the_levels_of_table_3(fault: str, level: str) -> None:
    near, _ = fidelity.judged(Draw(SMALL, (fault,), fault, iterations=18), 3)
    assert near.level == level


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "place"), [(kind, PLACES.get(kind.fault, "rank9")) for kind in KINDS], ids=[kind.name for kind in KINDS]
)
def test_each_kind_shows_the_level_of_table_3(kind: Kind, place: str) -> None:
    """In the first pipeline stage, whose gradients nothing covers, and at the first level of table 4."""
    case = drawn(kind, kind.levels[0], MOE if kind.jobs == (MOE,) else GPT, place)
    near, _ = fidelity.judged(fidelity.on_a_testbed(case), 5)
    assert near.level == LEVELS[kind.name][fidelity.METHOD]


def test_table_4_has_fourteen_experiments_of_slow_computation() -> None:
    """Eight of them throttle GPUs, which the methods find: the published recall of 57 %."""
    kinds = [CELLS[number * 7 % len(CELLS)][0].name for number in fidelity.numbers(fidelity.SLOW)]
    assert (len(kinds), kinds.count("GPU throttling")) == (14, 8)


def test_the_page_shows_every_kind_with_its_published_level() -> None:
    found = re.search(r"<!-- operators -->\n(.*?)<!-- /operators -->", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    rows = [line.split(" | ")[:2] for line in found[1].splitlines()[2 : 2 + len(KINDS)]]
    assert rows == [[f"| {kind.name}", LEVELS[kind.name][fidelity.METHOD]] for kind in KINDS]
