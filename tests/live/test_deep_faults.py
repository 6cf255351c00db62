"""Hangs below the surface: helpers, loops, disagreements, groups that wait for victims, cut links; a job that is only slow."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.live.commands import collect, diagnose
from tests.live.deep_faults import DEEP_FAULTS, rows_come_late
from tests.live.deep_network import CUTS, collect_apart
from tests.live.faults import Answer, Fault, Position
from tests.live.test_faults import inputs_folder, position_of

pytestmark = [pytest.mark.live, pytest.mark.deep]

CAN_CUT = os.geteuid() == 0 and shutil.which("ip") is not None


@pytest.mark.parametrize("fault", DEEP_FAULTS, ids=lambda fault: fault.start.__name__)
def test_the_fault_is_named(fault: Fault, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    at = position_of(fault, request.config)
    with fault.start(inputs_folder(tmp_path), at) as job:
        collect(job, tmp_path / "bundle.tar")

    assert_answer(diagnose(tmp_path / "bundle.tar"), fault.answer, at)


@pytest.mark.skipif(not CAN_CUT, reason="network namespaces need root and iproute2")
@pytest.mark.parametrize("fault", CUTS, ids=lambda fault: fault.start.__name__)
def test_a_cut_link_accuses_nobody_else(fault: Fault, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    at = position_of(fault, request.config)
    with fault.start(inputs_folder(tmp_path), at) as job:
        collect_apart(job, tmp_path / "bundle.tar")

    assert_answer(diagnose(tmp_path / "bundle.tar"), fault.answer, at)


@pytest.mark.parametrize("late", [1, 2])
def test_a_late_rank_is_not_hung(late: int, tmp_path: Path) -> None:
    with rows_come_late(inputs_folder(tmp_path), Position(late, 6)) as job:
        collect(job, tmp_path / "bundle.tar")
        job.wait_steps(job.lines(0) + 2)
    verdict = diagnose(tmp_path / "bundle.tar")

    assert verdict["outcome"] in ("healthy", "slowdown", "inconclusive"), verdict["summary"]
    assert all(suspect["ranks"] == [late] and suspect["anomaly"] == "fail_slow" for suspect in verdict["suspects"])


def assert_answer(verdict: dict[str, Any], right: Answer, at: Position) -> None:
    assert verdict["outcome"] in right.outcomes, verdict["summary"]
    first, *others = verdict["suspects"]
    assert tuple(sorted(first["ranks"])) in right.ranks(at)
    assert first["cause"] in right.causes
    assert set(right.rules) <= set(first["rules"])
    assert not right.stages or first["stage"]["name"] in right.stages
    assert all(other["fault"] == first["fault"] for other in others), "a second fault is a false accusation"
