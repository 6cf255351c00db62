"""Layouts of simulated jobs whose groups have no names: every axis and stage is that of the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.fixtures.simulator import bundle
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.groups import create_groups
from forensics.fixtures.simulator.losses import Losses, drawn
from forensics.fixtures.simulator.presets import PRESETS
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.rules.engine import supply_of
from forensics.rules.reductions.pipeline.layout import Layout

RECORDED = Path(__file__).parents[3] / "fixtures" / "recorded"
JOBS = (
    "venustrace",
    "llama-interleaved",
    "mycroft",
    "gpt2-32b",
    "mixtral-8x7b",
    "fsdp-64",
    "long-context",
    "ddp-8",
    "gpipe-small",
)


def nameless(path: Path) -> Layout:
    """The layout of a bundle, without what groups are called."""
    connection = open_case([path])
    connection.execute("UPDATE communicators SET pg_name = md5(communicator), description = md5(communicator || 'x')")
    return supply_of(connection, None).get(Layout)


def written(job: str, fault: str, path: Path) -> tuple[Simulation, dict[str, str]]:
    """A bundle with dumps only; the axis of each group by its name."""
    made = simulate(PRESETS[job], [parse(fault)], 5, after_s=8.0)
    options = bundle.options_of(made)
    lost: Losses = drawn(made.job.parallel.world, made.random("losses"), only=frozenset({"recorder"}))
    bundle.write(made, options, lost, path)
    # All ranks of a job without other dimensions are its replicas.
    of_all = "dp" if made.job.parallel.data == made.job.parallel.world else "world"
    groups = create_groups(made.job, options.code.style)
    return made, {group.name: of_all if group.axis == "world" else group.axis for group in groups}


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["none", "host-hang@rank1"])
@pytest.mark.parametrize("job", JOBS)
def test_every_axis_and_stage_is_that_of_the_program(tmp_path: Path, job: str, fault: str) -> None:
    path = tmp_path / "bundle.tar"
    made, truth = written(job, fault, path)
    layout = nameless(path)
    assert {label.partition(":")[0]: str(known.axis) for label, known in layout.axes.items()} == truth
    stages = {rank: place.stage for rank, place in layout.places.items() if place.stage is not None}
    parallel = made.job.parallel
    assert stages == ({rank: parallel.stage_of(rank)[0] for rank in range(parallel.world)} if parallel.pipeline > 1 else {})


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.tar.zst")), ids=lambda path: path.name)
def test_real_dumps_of_gloo_show_no_axis(path: Path) -> None:
    layout = nameless(path)
    assert {str(known.axis) for known in layout.axes.values()} <= {"world", "unknown"}
    assert layout.pipelines == () and not layout.contradictions
