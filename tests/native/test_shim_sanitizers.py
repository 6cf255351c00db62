"""The writer's sources under the sanitizers, all slots and records worked by several threads at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.shim_jobs import HERE, RING, compile_c, only_log, run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_no_finding(sanitizer: str, tmp_path: Path) -> None:
    options = (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-g", "-O1")
    # gcc says that its thread sanitizer does not model fences; the stores that they order are atomic as well
    quiet = ("-Wno-tsan",) if sanitizer == "thread" else ()
    try:
        program = compile_c(tmp_path / "states", [HERE / "states.c", *RING], *options, *quiet)
    except Exception:  # no runtime of this sanitizer here
        pytest.skip(f"cannot build with -fsanitize={sanitizer}")
    done = run([program, 1000], tmp_path / "logs")
    assert (done.returncode, done.stderr) == (0, "")
    log = only_log(tmp_path / "logs")
    assert not log.problems
    flows = log.rows("flows")
    assert {row["end_ns"] is None for row in flows} == {True, False}
    assert all(row["total"] == 4 for row in log.rows("chunk_states"))
    assert {row["peer"] for row in flows} == {0, 1, 2, 3}
