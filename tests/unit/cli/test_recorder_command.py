"""`forensics recorder --copy`: the recorder in an environment that has nothing else of this package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from forensics.errors import ExitCode
from tests.recordings.commands import Command
from tests.unit.ingest.reading import read

TRAINER = """
import sys
from forensics_recorder import Recorder
perf = Recorder(sys.argv[1], rank=1, world_size=2)
for batch in perf.batches([1, 2, 3]):
    with perf.step():
        with perf.stage("forward"), perf.device_time():
            pass
        with perf.stage("backward"):
            pass
perf.close()
foreign = sorted(name for name in sys.modules if name.partition(".")[0] in ("forensics", "duckdb", "numpy", "typer", "rich"))
assert perf.error is None and not foreign, (perf.error, foreign)
"""


def test_the_recorder_runs_from_one_file_without_any_package(tmp_path: Path, forensics: Command) -> None:
    answer = forensics("recorder", "--copy", tmp_path)
    assert answer.code == 0 and "from forensics_recorder import Recorder" in answer.out
    trainer = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{TRAINER}"
    subprocess.run([sys.executable, "-I", "-S", "-c", trainer, str(tmp_path / "stages")], check=True, cwd="/")
    found = read((tmp_path / "stages/rank_1.stages").read_bytes(), "rank_1.stages")
    assert found.config() == {"world_size": "2"}
    assert [row["step"] for row in found.rows("steps")] == [0, 1, 2]
    assert {row["stage"] for row in found.rows("stage_spans")} >= {"data", "forward", "backward"}


def test_the_copy_is_plain_python_that_a_linter_of_the_job_takes(tmp_path: Path, forensics: Command) -> None:
    assert forensics("recorder", "--copy", tmp_path / "stages.py").code == 0
    checks = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E9,F", str(tmp_path / "stages.py")]
    assert subprocess.run(checks, capture_output=True, text=True, check=False).returncode == 0


def test_a_file_that_is_there_is_kept(tmp_path: Path, forensics: Command) -> None:
    own = tmp_path / "own.py"
    own.write_text("keep")
    answer = forensics("recorder", "--copy", own)
    assert answer.code == ExitCode.USAGE and "--force" in answer.err and own.read_text() == "keep"
    assert forensics("recorder", "--copy", own, "--force").code == 0 and own.read_text() != "keep"
    assert forensics("recorder", "--copy", tmp_path / "no/where.py").code == ExitCode.USAGE
    for missing in (f"{tmp_path}/src/", tmp_path / "src"):
        assert forensics("recorder", "--copy", missing).code == ExitCode.USAGE
    assert not (tmp_path / "src").exists()
