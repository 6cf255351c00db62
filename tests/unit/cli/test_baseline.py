"""A case held against a good run of the same job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.recordings.collection import write
from tests.recordings.commands import Command
from tests.recordings.job import MILLISECOND, Job, as_json

USAGE, INSUFFICIENT = 2, 4


def run_of(folder: Path, pace_ms: int, world: int = 4, steps: int = 16) -> Path:
    """Two dumps a rank of a job that moves."""
    job = Job(world, pace_ns=pace_ms * MILLISECOND)
    job.steps(steps)
    files = {f"rank{rank}.fr.0.json": as_json(job.dump(rank)) for rank in range(world)}
    job.steps(3)
    return write(folder, files | {f"rank{rank}.fr.1.json": as_json(job.dump(rank)) for rank in range(world)})


@pytest.mark.slow
@pytest.mark.parametrize(("pace_ms", "outcome"), [(20, "slowdown"), (10, "healthy"), (6, "healthy")])
@pytest.mark.first(1)
def test_steps_are_held_against_those_of_the_good_run(forensics: Command, tmp_path: Path, pace_ms: int, outcome: str) -> None:
    """Half as fast from the first step on: without the good run nothing tells it, nor that it is not so."""
    good, case = run_of(tmp_path / "good", 10), run_of(tmp_path / "case", pace_ms)
    alone = json.loads(forensics("diagnose", case, "--format", "json").out)
    verdict = json.loads(forensics("diagnose", case, "--baseline", good, "--format", "json").out)
    assert (alone["outcome"], verdict["outcome"], verdict["suspects"]) == ("inconclusive", outcome, [])
    assert [label["axis"] for label in verdict["labels"] if label["label"] == "baseline"] == ["steps"]
    assert "in the baseline" in verdict["summary"]


@pytest.mark.slow
def test_another_job_is_refused(forensics: Command, tmp_path: Path) -> None:
    good, case = run_of(tmp_path / "good", 10, world=3), run_of(tmp_path / "case", 10)
    answer = forensics("diagnose", case, "--baseline", good)
    assert answer.code == USAGE
    assert "another job: world is 3 there and 4 here" in answer.err


@pytest.mark.slow
def test_a_baseline_without_steps_is_refused(forensics: Command, tmp_path: Path) -> None:
    good, case = run_of(tmp_path / "good", 10, steps=1), run_of(tmp_path / "case", 10)
    answer = forensics("diagnose", case, "--baseline", good)
    assert answer.code == INSUFFICIENT
    assert "do not both have the length of 5 steps" in answer.err


@pytest.mark.slow
def test_a_run_that_hung_is_no_baseline(forensics: Command, tmp_path: Path, bundle: Path) -> None:
    answer = forensics("diagnose", run_of(tmp_path / "case", 10), "--baseline", bundle)
    assert answer.code == USAGE
    assert "it is no good run: hang" in answer.err
