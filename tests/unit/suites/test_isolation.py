"""The diagnosing process is given a path and the names of methods, and nothing that leads to the truth."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forensics.fixtures.suites import running
from forensics.fixtures.suites.interface import Case
from forensics.fixtures.suites.preparing import Prepared
from tests.unit.suites.documents import fault, truth, verdict

ROOT = Path(__file__).parents[3]
SITTING = "import forensics.fixtures.suites.sitting, sys; print([name for name in sys.modules if 'simulator' in name])"


@pytest.mark.slow
def test_the_examinee_knows_no_simulator() -> None:
    done = subprocess.run([sys.executable, "-c", SITTING], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_only_the_bundle_is_there_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def prepared(case: Case, folder: Path) -> Prepared:
        (folder / "bundle.tar").write_bytes(b"")
        known = {"evidence": {"sources": ["recorder", "stacks"], "missing_ranks": [], "cut_share": 0.0}}
        return Prepared(folder / "bundle.tar", truth("hang", fault(123)) | known, "forward")

    def sitting(command: list[str], **given: Any) -> subprocess.CompletedProcess[bytes]:
        bundle = Path(command[3])
        seen.update(command=command, given=given, beside=[path.name for path in bundle.parent.iterdir()])
        return subprocess.CompletedProcess(command, 0, json.dumps({"verdict": verdict("hang"), "named": {}}).encode(), b"")

    monkeypatch.setattr(running, "prepare", prepared)
    monkeypatch.setattr("forensics.fixtures.suites.running.subprocess.run", sitting)
    row = running.run_case(Case("hang", 1, 0))
    assert row.truth["faults"][0]["ranks"] == [123]
    assert row.sources == ("recorder", "stacks")
    assert seen["beside"] == ["bundle.tar"]
    assert seen["command"][1:3] == ["-m", "forensics.fixtures.suites.sitting"]
    assert all(word in ("missing rank", "network only", "fixed threshold") for word in seen["command"][4:])
    assert not seen["given"].get("input")
    assert "hang" not in Path(seen["command"][3]).parent.name


def test_a_case_that_cannot_be_made_is_a_row_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepared(case: Case, folder: Path) -> Prepared:
        raise ValueError("no such job")

    monkeypatch.setattr(running, "prepare", prepared)
    row = running.run_case(Case("hang", 1, 0))
    assert row.mark is None
    assert "no such job" in row.error


@pytest.mark.slow
def test_an_examinee_that_fails_says_why(tmp_path: Path) -> None:
    assert running.examine(tmp_path / "nothing.tar", ())["error"]
