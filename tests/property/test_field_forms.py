"""A part of the evidence in other forms may weaken the verdict on a recorded bundle, and never makes it wrong."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from forensics.errors import ForensicsError
from forensics.fixtures.field.form import field_form
from forensics.model import Outcome, Verdict
from tests.recordings.verdicts import verdict_of

ROOT = Path(__file__).parents[2]
SCENARIOS = sorted(path.parent.name for path in (ROOT / "fixtures/scenarios").glob("*/expected.json"))
USUAL = ("checkpoint-stalled", "behind-in-shim-logs", "device-stalled", "stage-slow", "job-moving")
SEEDS = 12


def marks(name: str, seed: int) -> list[pytest.MarkDecorator]:
    if name not in USUAL or seed > 1:
        return [pytest.mark.deep]
    return [pytest.mark.slow] if seed else []


PAIRS = [pytest.param(name, seed, marks=marks(name, seed)) for name in SCENARIOS for seed in range(SEEDS)]


def wrongly_named(verdict: Verdict, right: set[int]) -> set[int]:
    """Innocent ranks; one of a set that holds a guilty one is no accusation."""
    accused = [s for s in verdict.suspects if s.members != "one_of" or right.isdisjoint(s.ranks)]
    return {rank for suspect in accused for rank in suspect.ranks} - right


@pytest.mark.parametrize(("name", "seed"), PAIRS)
def test_a_hand_over_is_never_wrong(name: str, seed: int, tmp_path: Path) -> None:
    folder = ROOT / "fixtures/scenarios" / name
    expected = json.loads((folder / "expected.json").read_text())
    made = field_form(folder / "bundle.tar.zst", seed, tmp_path)
    try:
        verdict = verdict_of(made.path)
    except ForensicsError as error:
        assert "Traceback" not in str(error)
        return
    right = {rank for suspect in expected["suspects"] for rank in suspect["ranks"]}
    assert not wrongly_named(verdict, right), (verdict.summary, made.described)
    assert verdict.outcome is not Outcome.HEALTHY or expected["outcome"] == "healthy", made.described


def test_the_same_seed_gives_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any time of day: seed 3 is packed."""
    seconds = itertools.count(1_800_000_000)
    monkeypatch.setattr("time.time", lambda: next(seconds))
    bundle = ROOT / "fixtures/scenarios/checkpoint-stalled/bundle.tar.zst"
    first, again = (field_form(bundle, 3, tmp_path / name) for name in ("first", "again"))
    assert first.described == again.described
    assert files_below(tmp_path / "first") == files_below(tmp_path / "again")


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
