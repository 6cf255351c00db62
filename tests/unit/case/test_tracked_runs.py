"""Folders of runs that wandb keeps beside each other: an earlier run that was over, and ranks of one job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.verdicts import verdict_of

ERROR = (
    'Traceback (most recent call last):\n  File "t.py", line 4, in <module>\n    main()\n'
    "OSError: [Errno 5] Input/output error\n"
)
DONE = "Training finished.\n"


def run(base: Path, name: str, end: str, *, took: object = 300, program: object = "t.py", summary: object = None) -> None:
    files = base / "wandb" / name / "files"
    files.mkdir(parents=True)
    (files / "output.log").write_text("".join(f"step {step}/60 loss 2.{step}\n" for step in range(1, 61)) + end)
    (files / "wandb-metadata.json").write_text(json.dumps({"program": program, "host": "n1"}))
    (files / "wandb-summary.json").write_text(str(summary or json.dumps({"_step": 60, "_runtime": took})))


def judged(folder: Path) -> tuple[Outcome, bool]:
    verdict = verdict_of(folder)
    return verdict.outcome, any("Input/output error" in lead or "OSError" in lead for lead in verdict.leads)


@pytest.mark.parametrize("former", ["run-20260209_060000-a1b2", "offline-run-20260209_060000-a1b2"])
def test_a_run_that_was_over_before_the_newest_began_is_left_out(tmp_path: Path, former: str) -> None:
    run(tmp_path, former, ERROR)
    run(tmp_path, "run-20260211_060000-c3d4", DONE)
    assert judged(tmp_path) == (Outcome.HEALTHY, False)
    assert any("was over before" in warning.statement for warning in verdict_of(tmp_path).warnings)


def test_the_newest_of_them_counts_whatever_became_of_it(tmp_path: Path) -> None:
    run(tmp_path, "run-20260209_060000-a1b2", DONE)
    run(tmp_path, "run-20260211_060000-c3d4", ERROR)
    outcome, leads = judged(tmp_path)
    assert outcome is not Outcome.HEALTHY
    assert leads


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("20260211_055800", {}),
        ("20260209_060000", {"took": 3 * 86400}),
        ("20260209_060000", {"took": None}),
        ("20260209_060000", {"took": "long"}),
        ("20260209_060000", {"summary": "[1, "}),
        ("20260209_060000", {"took": 1e300}),
        ("20269999_060000", {}),
        ("20260209_060000", {"program": "other.py"}),
    ],
    ids=[
        "a rank of the job",
        "still running",
        "no length",
        "no number",
        "cut",
        "beyond all times",
        "no date",
        "another program",
    ],
)
def test_runs_of_which_nothing_shows_that_they_were_over(tmp_path: Path, start: str, said: dict[str, object]) -> None:
    run(tmp_path, f"run-{start}-a1b2", ERROR, **said)
    run(tmp_path, "run-20260211_060000-c3d4", DONE)
    assert judged(tmp_path)[0] is not Outcome.HEALTHY
