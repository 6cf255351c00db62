"""Real data-parallel jobs, one stage of one rank slow in turn: the recorder and a trace of the same job name it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.live.commands import collect, diagnose
from tests.live.harness import JOBS, DumpRequest, free_port, launch, running_rank, wait_for

pytestmark = [pytest.mark.live, pytest.mark.alone]

ROOT = Path(__file__).parents[2]
SEEN_BELOW = ("forward", "backward", "callbacks")
LIMIT_S = 180
PLAIN = ("## data ##", "## forward ##", "## backward ##", "## callbacks ##", "## optimizer ##")
# Names that people gave to the parts of their steps, and names that nobody could guess.
USUAL = ("next_batch", "train_batch/fwd", "bwd_pass", "after_batch_hooks", "apply_opt_step")
OWN = ("pull_shard", "phase_one", "phase_two", "push_telemetry", "phase_three")
OWN_NAMES = """
[stages]
data = ["^pull_shard$"]
forward = ["^phase_one$"]
backward = ["^phase_two$"]
callbacks = ["^push_telemetry$"]
optimizer = ["^phase_three$"]
"""
deep = pytest.mark.deep


def run(folder: Path, *arguments: str, world: int = 4) -> Path:
    """Run the recorded trainer to its end; gives the folder of its records."""
    records = folder / "records"
    records.mkdir()
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    shared |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    script = [sys.executable, str(JOBS / "train_recorded.py"), "--world", str(world)]
    with running_rank(folder / "job.log", [*script, "--folder", str(records), *arguments], shared) as process:
        code = process.wait(LIMIT_S)
    assert code == 0, (folder / "job.log").read_text()[-2000:]
    return records


def traced(folder: Path, *arguments: str, world: int = 4) -> tuple[Path, Path]:
    """The same with a trace of each rank; gives the folders of records and traces."""
    traces = folder / "traces"
    traces.mkdir()
    return run(folder, "--trace", str(traces), "--watch", *arguments, world=world), traces


ANALYSED, UNDECIDED = 0, 4


def slow(stage: str, *, delay: float, steps: int, rank: int = 2) -> tuple[str, ...]:
    return ("--slow", stage, "--rank", str(rank), "--delay", str(delay), "--steps", str(steps))


def diagnosed(folder: Path, **environ: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "forensics", "diagnose", str(folder), "--format", "json"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environ}
    out = subprocess.run(command, env=variables, capture_output=True, check=False, timeout=LIMIT_S)
    assert out.returncode in (ANALYSED, UNDECIDED), out.stderr
    document: dict[str, Any] = json.loads(out.stdout)
    return document


def named(document: dict[str, Any]) -> list[tuple[str, list[int]]]:
    """Stage and ranks of every suspect; `since` and alternatives are not of interest here."""
    return [(suspect["stage"]["name"], suspect["ranks"]) for suspect in document["suspects"]]


def shares(document: dict[str, Any]) -> dict[str, float]:
    window = document["frontier"]["windows"][0]
    return dict(zip(window["stages"], window["shares"], strict=True))


def wait_recorded(folder: Path, world: int, steps: int = 40) -> None:
    """Wait until every rank has written so many steps into its file."""

    def written(rank: int) -> int:
        path = folder / f"rank_{rank}.stages"
        return int.from_bytes(path.read_bytes()[64:72], "little") if path.exists() else 0

    wait_for(lambda: all(written(rank) >= steps for rank in range(world)), LIMIT_S, lambda: f"{steps} recorded steps")


@pytest.mark.parametrize("stage", ["data", "optimizer", "other", *(pytest.param(stage, marks=deep) for stage in SEEN_BELOW)])
def test_a_slow_stage_of_one_rank(tmp_path: Path, stage: str) -> None:
    records = run(tmp_path, *slow(stage, delay=0.06, steps=25), "--watch")
    assert named(diagnosed(records))[0] == (stage, [2])


def test_a_sound_job_accuses_nobody(tmp_path: Path) -> None:
    assert diagnosed(run(tmp_path, "--steps", "25", "--watch"))["suspects"] == []


def test_a_late_onset_is_dated(tmp_path: Path) -> None:
    document = diagnosed(run(tmp_path, *slow("backward", delay=0.1, steps=35, rank=1), "--start", "15"))
    assert named(document)[0] == ("backward", [])
    assert abs(document["since"]["step"] - 15) <= 1


@pytest.mark.parametrize("stage", ["forward", pytest.param("optimizer", marks=deep), pytest.param("backward", marks=deep)])
def test_eight_ranks(tmp_path: Path, stage: str) -> None:
    records = run(tmp_path, *slow(stage, delay=0.15, steps=20, rank=6), "--watch", world=8)
    assert named(diagnosed(records))[0] == (stage, [6])


@pytest.mark.parametrize(
    "stage", ["backward", *(pytest.param(stage, marks=deep) for stage in ("data", "forward", "callbacks"))]
)
def test_accumulated_microsteps(tmp_path: Path, stage: str) -> None:
    """Four microsteps, three of them without synchronisation: a wait in the last is not a slow backward pass."""
    records, traces = traced(tmp_path, *slow(stage, delay=0.03, steps=15), "--microsteps", "4", "--annotate", *PLAIN)
    for found in (diagnosed(records), diagnosed(traces)):
        assert named(found)[0] == (stage, [2])
        assert "gradient_accumulation_ambiguous" not in {label["label"] for label in found["labels"]}


@pytest.mark.parametrize(
    "stage", ["backward", "callbacks", *(pytest.param(stage, marks=deep) for stage in ("data", "forward"))]
)
def test_a_trace_says_the_same(tmp_path: Path, stage: str) -> None:
    records, traces = traced(tmp_path, *slow(stage, delay=0.1, steps=12), "--annotate", *PLAIN)
    by_record, by_trace = diagnosed(records), diagnosed(traces)
    assert named(by_trace)[0] == named(by_record)[0] == (stage, [2])
    recorded, read = shares(by_record), shares(by_trace)
    assert read == pytest.approx(recorded, abs=0.05)


@pytest.mark.parametrize(
    ("stage", "seen"),
    [
        ("forward", "forward"),
        ("backward", "backward"),
        pytest.param("optimizer", "other", marks=deep),
        pytest.param("callbacks", "other", marks=deep),
        pytest.param("data", "other", marks=deep),
    ],
)
def test_a_trace_that_nobody_annotated(tmp_path: Path, stage: str, seen: str) -> None:
    """Only the marks of the profiler, of DDP and of the update: what none of them covers is said to be no stage."""
    _, traces = traced(tmp_path, *slow(stage, delay=0.1, steps=12))
    assert named(diagnosed(traces))[0] == (seen, [2])


def test_a_trace_with_stacks(tmp_path: Path) -> None:
    _, traces = traced(tmp_path, *slow("callbacks", delay=0.1, steps=12), "--with-stack", "--annotate", *PLAIN)
    assert b'"python_function"' in (traces / "rank-0.pt.trace.json").read_bytes()
    assert named(diagnosed(traces))[0] == ("callbacks", [2])


@pytest.mark.parametrize("stage", ["backward", pytest.param("data", marks=deep), pytest.param("optimizer", marks=deep)])
def test_names_that_people_give(tmp_path: Path, stage: str) -> None:
    _, traces = traced(tmp_path, *slow(stage, delay=0.1, steps=12), "--annotate", *USUAL)
    assert named(diagnosed(traces))[0] == (stage, [2])


def test_names_that_a_file_explains(tmp_path: Path) -> None:
    _, traces = traced(tmp_path, *slow("callbacks", delay=0.1, steps=12), "--annotate", *OWN)
    (tmp_path / "names.toml").write_text(OWN_NAMES)
    explained = diagnosed(traces, FORENSICS_STAGE_NAMES=str(tmp_path / "names.toml"))
    assert named(explained)[0] == ("callbacks", [2])
    assert named(diagnosed(traces))[0] == ("other", [2])


def test_stages_are_collected_from_a_job_that_runs(tmp_path: Path) -> None:
    """Nobody stated the collector the folder: it is where the ranks hold their files open."""
    arguments = ("--folder", str(tmp_path / "chosen"), *slow("data", delay=0.06, steps=100_000), "--watch")
    with launch("train_recorded.py", arguments, env={"PYTHONPATH": str(ROOT)}, dumps=DumpRequest.NONE) as job:
        wait_recorded(tmp_path / "chosen", 4)
        collect(job, tmp_path / "bundle.tar")
    with tarfile.open(tmp_path / "bundle.tar") as tar:
        names = {name for name in tar.getnames() if "/stages/" in name}
    assert names == {f"ranks/{rank}/stages/rank_{rank}.stages.zst" for rank in range(4)}
    assert ("data", [2]) in named(diagnose(tmp_path / "bundle.tar"))
