"""What the collector keeps near at hand is an excerpt: more communicators and call sites are found all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.shim_jobs import HERE, compile_c, double, linked, only_log, ring_objects, run


@pytest.mark.slow
def test_handles_are_found_while_they_are_bound(tmp_path: Path) -> None:
    program = compile_c(tmp_path / "handles", [HERE / "handles.c", *ring_objects()])
    done = run([program], tmp_path / "logs")
    assert (done.returncode, done.stderr) == (0, "")


def test_every_call_site_is_recorded(built: Path, tmp_path: Path) -> None:
    program = compile_c(tmp_path / "sites", [HERE / "sites.c"], *linked(double(tmp_path)))
    assert run([program], tmp_path / "logs", built / "libforensics_shim.so").returncode == 0
    log = only_log(tmp_path / "logs")
    assert not log.problems
    rows = log.rows("operations")
    assert len(rows) == 600
    assert [row["sequence"] for row in rows] == list(range(1, 601))
