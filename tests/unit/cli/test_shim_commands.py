"""`forensics shim` and `forensics doctor` on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from forensics.errors import ExitCode
from tests.recordings.commands import Command

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "fixtures/samples/shim_log/one_of_everything.frx"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "libforensics_shim.so"
    path.touch()
    return path


def test_env_prints_what_a_shell_can_take(library: Path, forensics: Command) -> None:
    answer = forensics("shim", "env", "--library", library, "--dir", "/scratch")
    assert answer.code == 0
    assert answer.out.splitlines()[-3:] == [
        f"export LD_PRELOAD={library}",
        f"export NCCL_PROFILER_PLUGIN={library}",
        "export FORENSICS_SHIM_DIR=/scratch",
    ]


def test_help_says_where_logs_are_looked_for(forensics: Command) -> None:
    assert all("forensics-UID" in forensics("shim", command, "--help").out for command in ("env", "run", "status"))


def test_env_refuses_a_form_it_does_not_know(library: Path, forensics: Command) -> None:
    assert forensics("shim", "env", "--library", library, "--format", "xml").code == ExitCode.USAGE


def test_run_becomes_the_program(library: Path) -> None:
    command = [sys.executable, "-m", "forensics", "shim", "run", "--no-preload", "--library", str(library), "--"]
    code = "import os, sys; print(os.environ['NCCL_PROFILER_PLUGIN'], sys.argv[1:])"
    done = subprocess.run(
        [*command, sys.executable, "-c", code, "--flag"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == f"{library} ['--flag']\n"


def test_run_says_what_cannot_be_started(library: Path, forensics: Command) -> None:
    answer = forensics("shim", "run", "--library", library, "--", "/no/such/program")
    assert answer.code == ExitCode.USAGE and "/no/such/program" in answer.err


def test_status_as_text_and_as_json(forensics: Command) -> None:
    stated = forensics("shim", "status", SAMPLE)
    assert stated.code == 0 and stated.out.startswith("rank 1  host ")
    document = json.loads(forensics("shim", "status", SAMPLE, "--format", "json").out)
    assert document["schema"] == "forensics.shim_status/1"
    (one,) = document["logs"]
    assert (one["rank"], one["problem"]) == (1, None)


def test_status_of_nothing(tmp_path: Path, forensics: Command) -> None:
    assert "no log in" in forensics("shim", "status", tmp_path).out
    assert forensics("shim", "status", tmp_path / "nowhere").code == ExitCode.UNREADABLE


def test_doctor_ends_with_one_when_something_vital_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forensics: Command
) -> None:
    monkeypatch.setenv("FORENSICS_NATIVE_DIR", str(tmp_path))
    answer = forensics("doctor", "--format", "json")
    assert answer.code == 1
    checks = {check["name"]: check for check in json.loads(answer.out)["checks"]}
    assert checks["collector library"]["status"] == "missing"


def test_doctor_of_a_process_that_is_not_there(forensics: Command) -> None:
    answer = forensics("doctor", "--pid", 2**22 + 1)
    assert answer.code == 1 and "no such process" in answer.out
