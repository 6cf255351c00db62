"""Cases on processes of this machine: an exam that is interrupted ends at once, and leaves nothing behind."""

from __future__ import annotations

import tempfile
import time
from multiprocessing import active_children
from pathlib import Path

import pytest

from forensics.fixtures.suites.interface import Case
from forensics.fixtures.suites.processes import on_processes

CASES = [Case("healthy", 5, number) for number in range(4)]


@pytest.mark.slow
def test_cases_under_way_are_ended_with_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    rows = on_processes(CASES, 2)
    assert next(rows).case in CASES
    while not list(tmp_path.glob("case-*")):
        time.sleep(0.05)
    rows.close()
    assert active_children() == []
    assert list(tmp_path.glob("case-*")) == []
