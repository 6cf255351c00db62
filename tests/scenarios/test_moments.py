"""One GPU that is slow for a moment now and then: most steps are as long as ever, the few long ones have one rank in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.simulation import simulate
from forensics.fixtures.suites.frontier import job
from forensics.model import Outcome, Verdict
from forensics.rules.diagnosis import diagnose

pytestmark = pytest.mark.slow


def recorded(fault: str, seed: int, folder: Path, *, timing: bool) -> tuple[tuple[int, ...], Verdict]:
    """The rank of the fault, and the verdict on a record of 300 steps of eight ranks."""
    made = simulate(job(8), [parse(fault)], seed, iterations=300, onset=10)
    path = folder / "bundle.tar"
    bundle.write(made, bundle.options_of(made, timing=timing), losses.Losses(), path)
    connection = open_case([path])
    verdict = diagnose(connection)
    connection.close()
    return tuple(rank for injection in made.injections for rank in injection.ranks), verdict


@pytest.mark.parametrize("seed", [1, 4, 6])
def test_the_rank_of_the_moments_is_named_by_the_times_inside_its_calls(seed: int, tmp_path: Path) -> None:
    ranks, verdict = recorded("intermittent@random:800", seed, tmp_path, timing=True)
    assert (verdict.outcome, [suspect.ranks for suspect in verdict.suspects]) == (Outcome.SLOWDOWN, [ranks])


@pytest.mark.parametrize("seed", [1, 4])
def test_without_times_nobody_else_is_named_and_the_job_is_not_called_sound(seed: int, tmp_path: Path) -> None:
    ranks, verdict = recorded("intermittent@random:800", seed, tmp_path, timing=False)
    assert verdict.outcome is not Outcome.HEALTHY
    assert {rank for suspect in verdict.suspects for rank in suspect.ranks} <= {*ranks}


@pytest.mark.parametrize("seed", [1, 4])
def test_without_moments_nobody_is_named(seed: int, tmp_path: Path) -> None:
    assert not recorded("none", seed, tmp_path, timing=True)[1].suspects
