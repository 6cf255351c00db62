"""The profiler hook counts what a driver counts that calls it as NCCL does, for every version of the interface."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.shim_drivers import SANITIZERS, driver
from tests.native.shim_jobs import only_log, run

pytestmark = pytest.mark.slow

WAYS = ("versions", "unbalanced", "foreign", "namesake", "leak", "abort", "api", "kernel", "threads", "off")


@pytest.fixture(scope="module", params=SANITIZERS)
def program(request: pytest.FixtureRequest) -> Path:
    return driver("profiler_driver", ("profiler",), request.param)


@pytest.mark.parametrize("way", WAYS)
def test_counts(program: Path, way: str, tmp_path: Path) -> None:
    done = run([program, way], tmp_path / "logs")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("ok\n")


def test_a_forked_child_leaves_its_parents_log_alone(tmp_path: Path) -> None:
    program = driver("profiler_driver", ("profiler",), SANITIZERS[0])
    done = run([program, "fork"], tmp_path / "logs")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_log_can_be_read(tmp_path: Path) -> None:
    program = driver("profiler_driver", ("profiler",), SANITIZERS[0])
    assert run([program, "versions"], tmp_path / "logs").returncode == 0
    log = only_log(tmp_path / "logs")
    assert not log.problems
    states = log.rows("chunk_states")
    assert states
    assert all(row["total"] == 20 for row in states)
