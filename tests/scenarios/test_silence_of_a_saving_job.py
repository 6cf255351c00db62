"""A job that saves is silent for seconds again and again: a silence amid a pass is none of those, and one in a save is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import S
from forensics.fixtures.simulator.simulation import simulate
from forensics.rules.diagnosis import diagnose
from tests.unit.pipeline.test_delays import JOB

SAVING = replace(JOB, checkpoint_every=4, checkpoint_ns=6 * S, ahead=64, microbatches=8, callback_barrier=True)


def named(fault: str, seed: int, after_s: float, folder: Path) -> set[int]:
    """Who is named when somebody looks so many seconds after the halt, or after the newest steps."""
    made = simulate(SAVING, [parse(fault)], seed, iterations=40, onset=37, after_s=after_s)
    lost = losses.drawn(made.job.parallel.world, made.random("losses"))
    bundle.write(made, bundle.options_of(made, ring=6000, timing=True), lost, folder / "bundle.tar")
    with open_case([folder / "bundle.tar"]) as connection:
        return {rank for suspect in diagnose(connection).suspects for rank in suspect.ranks}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_silence_that_its_place_never_had_accuses(seed: int, tmp_path: Path) -> None:
    """Both ranks of the group are inside the call: nothing distinguishes them."""
    assert named("kernel-hang@rank6/forward", seed, 7.0, tmp_path) == {6, 7}


@pytest.mark.slow
@pytest.mark.parametrize("after_s", [1.0, 2.0, 4.0, 6.0, 8.0])
@pytest.mark.parametrize("seed", [3, 4])
def test_a_silence_of_a_save_accuses_nobody(seed: int, after_s: float, tmp_path: Path) -> None:
    assert named("none", seed, after_s, tmp_path) == set()
