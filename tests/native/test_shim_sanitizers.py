"""The writer's sources under the sanitizers, all slots and records worked by several threads at once."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.native.shim_drivers import SANITIZERS, sanitized
from tests.native.shim_guests import clean_environment, mounted, need_mounts
from tests.native.shim_jobs import HERE, compile_c, only_log, ring_objects, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=SANITIZERS)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver and the writer under a sanitizer."""
    options = sanitized(request.param)
    try:
        objects = ring_objects(*options)
        return compile_c(tmp_path_factory.mktemp("states") / "states", [HERE / "states.c", *objects], *options)
    except Exception:  # no runtime of this sanitizer here
        pytest.skip(f"cannot build with -fsanitize={request.param}")


def test_no_finding(program: Path, tmp_path: Path) -> None:
    done = run([program, 1000], tmp_path / "logs")
    assert (done.returncode, done.stderr) == (0, "")
    log = only_log(tmp_path / "logs")
    assert not log.problems
    flows = log.rows("flows")
    assert {row["end_ns"] is None for row in flows} == {True, False}
    assert all(row["total"] == 4 for row in log.rows("chunk_states"))
    assert {row["peer"] for row in flows} == {0, 1, 2, 3}


@pytest.mark.parametrize("size", ["64m", "600k"])
def test_no_finding_with_a_fork_and_little_room(program: Path, size: str) -> None:
    """Four threads, a child forked in their midst, a file system with room for a small log or for none."""
    need_mounts()
    # In the child a thread of its parent that has just ended is one that nobody joined.
    variables = {**clean_environment(), "TSAN_OPTIONS": "die_after_fork=0:report_thread_leaks=0"}
    command = mounted([program, 1000, "fork"], Path("/dev/shm"), size)
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
