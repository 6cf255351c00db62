"""Real jobs that hang or move: what is collected from outside must name the rank, the stage and the cause, or nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.commands import collect, diagnose
from tests.live.faults import FAULTS, Fault, Position, Start, moving, moving_with_phases
from tests.live.rare_faults import RARE_FAULTS

pytestmark = pytest.mark.live


def position_of(fault: Fault, config: pytest.Config) -> Position:
    usual, victim, step = fault.position, config.getoption("--victim"), config.getoption("--at-step")
    return Position(victim if victim in fault.victims else usual.victim, usual.step if step is None else step)


@pytest.mark.parametrize("fault", (*FAULTS, *RARE_FAULTS), ids=lambda fault: fault.start.__name__)
def test_the_fault_is_named(fault: Fault, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    at = position_of(fault, request.config)
    with fault.start(inputs_folder(tmp_path), at) as job:
        collect(job, tmp_path / "bundle.tar")
    verdict = diagnose(tmp_path / "bundle.tar")

    right = fault.answer
    assert verdict["outcome"] in right.outcomes, verdict["summary"]
    first, *others = verdict["suspects"]
    assert tuple(sorted(first["ranks"])) in right.ranks(at)
    assert first["cause"] in right.causes
    assert not right.stages or first["stage"]["name"] in right.stages
    assert all(other["fault"] == first["fault"] for other in others), "a second fault is a false accusation"


@pytest.mark.alone
@pytest.mark.parametrize("start", [moving, moving_with_phases], ids=lambda start: start.__name__)
def test_a_job_that_moves_is_not_hung(start: Start, tmp_path: Path) -> None:
    with start(inputs_folder(tmp_path), Position(victim=0, step=12)) as job:
        collect(job, tmp_path / "bundle.tar")
        job.wait_steps(job.lines(0) + 2)
    verdict = diagnose(tmp_path / "bundle.tar")

    assert verdict["outcome"] in ("healthy", "inconclusive"), verdict["summary"]
    assert verdict["suspects"] == []


def inputs_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "inputs"
    folder.mkdir()
    return folder
