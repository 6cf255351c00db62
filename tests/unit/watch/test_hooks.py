"""The hooks of docs/deploy that watch a job, or collect after it: with a stand-in that says how it was called."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[3] / "docs/deploy"


@pytest.fixture
def stand_in(tmp_path: Path) -> dict[str, str]:
    """A `forensics` that writes its arguments and number into a file."""
    tool = tmp_path / "bin/forensics"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/called.new && mv {tmp_path}/called.new {tmp_path}/called\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    return {
        "PATH": f"{tool.parent}:/usr/bin:/bin",
        "FORENSICS_PATH": str(tool.parent),
        "FORENSICS_BUNDLES": str(tmp_path / "b"),
    }


def run(script: str, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", str(DEPLOY / script), *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=60)


def test_a_launcher_is_watched_by_its_own_number(stand_in: dict[str, str], tmp_path: Path) -> None:
    waits = f"echo $$; while [ ! -e {tmp_path}/called ]; do sleep 0.01; done; exit 7"
    done = run("watch-launcher.sh", "sh", "-c", waits, **stand_in)
    assert done.returncode == 7
    assert (tmp_path / "called").read_text() == f"watch --stay --beside {done.stdout.strip()} --into {tmp_path}/b\n"


def test_a_job_starts_without_the_tool_and_without_a_folder(stand_in: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for environ in ({"PATH": "/usr/bin:/bin"}, {**stand_in, "FORENSICS_BUNDLES": str(tmp_path / "file/b")}):
        done = run("watch-launcher.sh", "sh", "-c", "echo trained; exit 7", **environ)
        assert (done.returncode, done.stdout) == (7, "trained\n") and "all the same" in done.stderr


@pytest.mark.parametrize(("code", "collects"), [("0", False), ("0:0", False), ("1:0", True), (None, True)])
def test_the_epilog_collects_of_jobs_that_did_not_end_well(
    code: str | None, collects: bool, stand_in: dict[str, str], tmp_path: Path
) -> None:
    stated = {} if code is None else {"SLURM_JOB_EXIT_CODE": code}
    assert run("slurm-epilog.sh", SLURM_JOB_ID="42", **stand_in, **stated).returncode == 0
    assert (tmp_path / "called").exists() == collects
    if collects:
        called = (tmp_path / "called").read_text()
        assert called.startswith(f"collect --host-only --force -o {tmp_path}/b/job-42-") and called.endswith(".tar\n")


def test_the_epilog_never_fails_and_ends_in_time(stand_in: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bin/forensics").write_text("#!/bin/sh\nexec sleep 600\n")
    assert run("slurm-epilog.sh", **stand_in, FORENSICS_EPILOG_S="0.2").returncode == 0
    (tmp_path / "bin/forensics").unlink()
    assert run("slurm-epilog.sh", **stand_in).returncode == 0


def test_the_sidecar_starts_a_watch_with_options_that_there_are(tmp_path: Path) -> None:
    page = (DEPLOY / "kubernetes-sidecar.yaml").read_text(encoding="utf-8")
    assert "shareProcessNamespace: true" in page and "SYS_PTRACE" in page
    found = re.search(r"args: (\[.*\])", page)
    assert found is not None
    words = [word.replace("/bundles", str(tmp_path)) for word in json.loads(found[1])]
    command = [sys.executable, "-m", "forensics", *words, "--interval", "0.1", "--wait", "0", "--job", "no such job"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0 and '"reason":"no job"' in done.stdout, done.stderr
