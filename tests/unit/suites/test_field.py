"""Field forms of a case: how they stand, whom they name beside, and what a suite says of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forensics.fixtures.field import logs
from forensics.fixtures.field.pieces import Place, evidence
from forensics.fixtures.suites import tables
from forensics.fixtures.suites.field import FORMS, Sitting, Standing, named_beside, sit, standing
from forensics.fixtures.suites.interface import Case
from forensics.fixtures.suites.registry import SUITES
from tests.unit.suites.documents import fault, suspect, truth, verdict
from tests.unit.suites.rows import document
from tests.unit.suites.test_tables import ROWS

HANG = truth("hang", fault(5))
BUNDLE = Path(__file__).parents[3] / "fixtures/scenarios/checkpoint-stalled/bundle.tar.zst"


@pytest.mark.parametrize(
    ("said", "true", "expected"),
    [
        (verdict("hang", suspect(5)), HANG, Standing.EXACT),
        (verdict("hang", suspect(5, 6)), HANG, Standing.PARTIAL),
        (verdict("inconclusive"), HANG, Standing.SILENT),
        (verdict("slowdown", suspect(stage="unknown")), HANG, Standing.SILENT),
        (verdict("slowdown", suspect()), HANG, Standing.PARTIAL),
        (verdict("hang", suspect(6)), HANG, Standing.WRONG),
        (verdict("healthy"), HANG, Standing.WRONG),
        (None, HANG, Standing.WRONG),
        (verdict("healthy"), truth("healthy"), Standing.EXACT),
        (verdict("inconclusive"), truth("healthy"), Standing.SILENT),
        (verdict("hang", suspect(6)), truth("healthy"), Standing.WRONG),
    ],
)
def test_silence_is_not_wrong_and_a_hang_called_healthy_is(said: Any, true: Any, expected: Standing) -> None:
    assert standing(said, true) is expected


def test_one_of_a_set_with_the_guilty_one_is_no_accusation_of_the_others() -> None:
    usual = verdict("hang", suspect(5))
    assert named_beside(verdict("hang", suspect(4, 5, 6, members="one_of")), usual, HANG) == ()
    assert named_beside(verdict("hang", suspect(4, 6, members="one_of")), usual, HANG) == (4, 6)
    assert named_beside(verdict("hang", suspect(5), suspect(6)), usual, HANG) == (6,)
    assert named_beside(verdict("hang", suspect(5), suspect(6)), verdict("hang", suspect(6)), HANG) == ()


def test_below_the_gate_whoever_has_the_fault_is_not_named_beside() -> None:
    below = truth("healthy", fault(5))
    assert named_beside(verdict("slowdown", suspect(5)), None, below) == ()
    assert named_beside(verdict("slowdown", suspect(6)), None, below) == (6,)
    assert standing(verdict("slowdown", suspect(5)), below) is Standing.EXACT


def test_each_form_is_judged_by_its_path_alone(tmp_path: Path) -> None:
    (tmp_path / "bundle.tar.zst").write_bytes(BUNDLE.read_bytes())
    handed: list[Path] = []

    def examine(path: Path) -> dict[str, Any]:
        handed.append(path)
        return {"error": "killed"} if len(handed) == 1 else {"verdict": verdict("hang", suspect(2))}

    found = sit(Case("hang", 7, 0), tmp_path / "bundle.tar.zst", truth("hang", fault(2)), None, examine)
    assert [one.standing for one in found] == [Standing.WRONG] + [Standing.EXACT] * (FORMS - 1)
    assert found[0].said == "killed"
    assert len({one.described for one in found}) == FORMS
    assert all(path.exists() for path in handed)


def test_a_suite_lists_the_forms_that_are_worse_than_their_bundle() -> None:
    silent = Sitting(0, ("only dump",), Standing.SILENT, "inconclusive")
    wrong = Sitting(1, ("only log", "zip"), Standing.WRONG, "hang: rank 6", (6,))
    rows = [replace(ROWS[0], standing=Standing.EXACT, field_forms=(silent, wrong)), *ROWS[1:]]
    found = document(SUITES["hang"], 7, rows)["field"]
    assert found["forms"] == {"silent": 1, "wrong": 1}
    assert [(one["case"], one["number"], one["replay"]) for one in found["worse"]] == [
        ("hang:7:0", 1, "forensics evaluate --replay hang:7:0 --field")
    ]
    text = tables.text([(SUITES["hang"], rows)])
    assert "field form" in text
    assert "only log; zip" in text
    assert document(SUITES["hang"], 7, ROWS)["field"] is None


def test_a_bundle_is_taken_apart_without_what_our_collector_adds() -> None:
    found = evidence(BUNDLE)
    assert {piece.kind for piece in found.pieces} >= {"stack", "dump", "log"}
    assert sorted(found.places) == [0, 1, 2, 3]
    assert not [piece for piece in found.pieces if piece.name in ("bundle.json", "rank.json", "collectors.jsonl")]


def test_times_of_containers_are_those_of_the_lines() -> None:
    lines = ["h:1:1 [0] NCCL INFO Init", "2026-03-01 10:00:00 step 1", "Traceback (most recent call last):"]
    assert logs.when(lines, 1_772_000_000) == [1_772_000_000, 1772359200, 1772359200]
    assert logs.when(lines[2:], 1_772_000_000) is None
    assert logs.stamped(["x"], [1772359200.0], ("+08:00", 8)) == ["2026-03-01T18:00:00.000000+08:00 x"]


def test_prefixes_say_the_rank_or_a_place() -> None:
    place = Place("gpu-2", 1, 3, 4711)
    said = {name: label(11, place) for name, label in logs.PREFIXES.items()}
    assert said["[rankN]:"] == "[rank11]: "
    assert said["torchrun --tee"] == "[default3]:"
    assert said["srun -l, a task for each host"] == "1: "
    assert logs.labelled(["[rank11]:[E] x"], "[rankN]:", 11, place) == ["[rank11]:[E] x"]
