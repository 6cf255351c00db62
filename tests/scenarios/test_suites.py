"""A quick exam: every suite that has quick cases, drawn, simulated, diagnosed in processes of its own, and scored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forensics.fixtures.suites.interface import Case
from forensics.fixtures.suites.registry import SUITES
from forensics.fixtures.suites.running import run_case
from tests.recordings.commands import Command
from tests.unit.suites.rows import document

pytestmark = pytest.mark.slow

SEED = 1
KEYS = {"suite", "seed", "cases", "exact", "partial", "wrong", "errors", "precision", "recall", "f1", "flagged", "rows"}


def test_a_quick_exam_finds_hangs_and_accuses_nobody_in_sound_jobs(forensics: Command) -> None:
    answer = forensics("evaluate", "--quick", "--seed", SEED, "--format", "json")
    assert (answer.code, answer.err) == (0, "")
    found = {each["suite"]: each for each in json.loads(answer.out)}
    assert found.keys() == SUITES.keys()
    for name, each in found.items():
        assert each.keys() >= KEYS
        assert len(each["rows"]) == each["cases"] == SUITES[name].quick
        assert each["errors"] == 0, [row["error"] for row in each["rows"]]
    hangs = found["hang"]["rows"]
    assert [row["mark"]["innocent"] for row in hangs] == [[]] * len(hangs)
    named = [row for row in hangs if row["verdict"]["suspects"]]
    assert named and all(row["verdict"]["suspects"][0]["ranks"] == row["truth"]["faults"][0]["ranks"] for row in named)
    assert found["healthy"]["flagged"] == 0


def test_the_same_case_gives_the_same_row_and_a_replay_keeps_it(forensics: Command, tmp_path: Path) -> None:
    case = Case("healthy", SEED, 0)
    (tmp_path / "first").mkdir()
    first = document(SUITES["healthy"], SEED, [run_case(case, tmp_path / "first")])["rows"][0]
    answer = forensics("evaluate", "--replay", case, "--keep", tmp_path / "again")
    assert answer.code == 0
    again = json.loads(answer.out)
    assert {key: again[key] for key in ("case", "truth", "verdict", "mark")} == json.loads(
        json.dumps({key: first[key] for key in ("case", "truth", "verdict", "mark")})
    )
    assert (tmp_path / "first/bundle.tar").read_bytes() == (tmp_path / "again/bundle.tar").read_bytes()
    assert json.loads((tmp_path / "again/truth.json").read_text())["schema"] == "forensics.truth/1"
    assert "next: forensics diagnose" in answer.err


@pytest.mark.parametrize(
    "arguments",
    [("hangs",), ("--replay", "hang"), ("--replay", "nothing:1:2"), ("--quick", "--full"), ("hang", "--keep", "x")],
    ids=["suite", "case", "suite of a case", "both", "keep"],
)
def test_errors_of_use_are_one_line(arguments: tuple[str, ...], forensics: Command) -> None:
    answer = forensics("evaluate", *arguments)
    assert answer.code == 2
    assert answer.err.count("\n") == 1
