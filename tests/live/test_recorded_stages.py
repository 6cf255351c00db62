"""Real data-parallel jobs, one stage of one rank slow in turn: the recorder and a trace of the same job name it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.live.harness import JOBS, Door, free_port, rank_env, running_rank

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]
STAGES = ("data", "forward", "backward", "callbacks", "optimizer", "other")
LIMIT_S = 180


def run(folder: Path, *arguments: str, world: int = 4) -> Path:
    """Run the recorded trainer to its end; gives the folder of its records."""
    records = folder / "records"
    records.mkdir()
    shared = {**os.environ, "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    shared |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(JOBS / "train_recorded.py"), "--folder", str(records), *arguments]
    with ExitStack() as stack:
        ranks = [
            stack.enter_context(running_rank(folder / f"rank{rank}.log", command, shared | rank_env(folder, rank, Door.CLOSED)))
            for rank in range(world)
        ]
        codes = [process.wait(LIMIT_S) for process in ranks]
    assert codes == [0] * world, (folder / "rank0.log").read_text()[-2000:]
    return records


def diagnosed(folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "forensics", "diagnose", str(folder), "--format", "json"]
    out = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=True, timeout=LIMIT_S)
    document: dict[str, Any] = json.loads(out.stdout)
    return document


def first(document: dict[str, Any]) -> tuple[str, list[int]]:
    suspect = document["suspects"][0]
    return suspect["stage"]["name"], suspect["ranks"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_slow_stage_of_one_rank(tmp_path: Path, stage: str) -> None:
    records = run(tmp_path, "--slow", stage, "--rank", "2", "--delay", "0.06", "--steps", "25", "--watch")
    assert first(diagnosed(records)) == (stage, [2])


def test_a_sound_job_accuses_nobody(tmp_path: Path) -> None:
    assert diagnosed(run(tmp_path, "--steps", "25", "--watch"))["suspects"] == []


def test_a_late_onset_is_dated(tmp_path: Path) -> None:
    document = diagnosed(run(tmp_path, "--slow", "backward", "--start", "15", "--steps", "35", "--delay", "0.1"))
    assert first(document) == ("backward", [])
    assert abs(document["since"]["step"] - 15) <= 1


@pytest.mark.parametrize("stage", ["backward", "callbacks"])
def test_a_trace_says_the_same(tmp_path: Path, stage: str) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    arguments = (
        "--slow",
        stage,
        "--rank",
        "2",
        "--delay",
        "0.1",
        "--steps",
        "12",
        "--watch",
        "--annotate",
        "--trace",
        str(traces),
    )
    records = run(tmp_path, *arguments)
    by_record, by_trace = diagnosed(records), diagnosed(traces)
    assert first(by_trace) == first(by_record) == (stage, [2])
    shares = [
        dict(zip(window["stages"], window["shares"], strict=True))
        for window in (document["frontier"]["windows"][0] for document in (by_record, by_trace))
    ]
    assert max(abs(shares[0].get(name, 0.0) - shares[1].get(name, 0.0)) for name in shares[0]) <= 0.1
