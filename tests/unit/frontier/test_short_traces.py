"""Traces of a few steps, cut or without marks: what they show is never ruled out, and less of it lowers the confidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forensics.case.build import open_case
from forensics.model import Outcome, Verdict
from forensics.rules.diagnosis import diagnose
from tests.unit.frontier.short_traces import write

_NEW_KERNEL = "void other::cross_device_reduce_1stage<__nv_bfloat16, 4>(other::Signal*)"


def _verdict(folder: Path, **options: Any) -> Verdict:
    write(folder, **options)
    return diagnose(open_case([folder]))


def _accused(verdict: Verdict) -> list[tuple[tuple[int, ...], str, str]]:
    return [(suspect.ranks, str(suspect.stage.name), str(suspect.confidence)) for suspect in verdict.suspects]


def _of_stages(verdict: Verdict) -> str:
    return next(outcome.reason for outcome in verdict.ruled_out if outcome.rule == "FX170")


@pytest.mark.parametrize(
    "options",
    [{}, {"cut": 0.9}, {"form": "json.tmp", "cut": 0.9}, {"form": "json"}, {"marks": False}],
    ids=["whole", "cut gzip", "cut while written", "plain", "no step marks"],
)
@pytest.mark.parametrize("stage", ["data", "forward", "backward"])
def test_a_rank_behind_its_peers_in_each_of_three_steps_is_a_lead(tmp_path: Path, stage: str, options: dict[str, Any]) -> None:
    assert _accused(_verdict(tmp_path, slow=stage, **options)) == [((2,), stage, "suspect")]


@pytest.mark.parametrize("stage", ["data", "backward"])
def test_operators_tell_the_stage_where_nothing_is_annotated(tmp_path: Path, stage: str) -> None:
    found = _verdict(tmp_path, slow=stage, marks=False, annotated=False, grouped=False)
    assert _accused(found) == [((2,), stage, "suspect")]


def test_more_steps_raise_the_confidence(tmp_path: Path) -> None:
    assert _accused(_verdict(tmp_path, steps=14)) == [((2,), "data", "likely")]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("steps", [2, 3, 5])
def test_jitter_of_a_few_steps_accuses_nobody(tmp_path: Path, steps: int, seed: int) -> None:
    found = _verdict(tmp_path, slow=None, steps=steps, seed=seed, noise=0.05)
    assert found.suspects == () and found.outcome is Outcome.INCONCLUSIVE
    assert "steps were compared" in _of_stages(found)
    assert next(row for row in found.coverage if row.kind == "flight recorder").present == ()


def test_how_long_few_steps_were_is_said(tmp_path: Path) -> None:
    found = _verdict(tmp_path, slow=None, steps=5, noise=0.05)
    assert "5 steps are recorded, of " in found.summary
    assert found.would_change[0].startswith("a trace of more steps than 5")


def test_a_placed_suspect_of_a_few_steps_needs_more_steps_and_no_dump(tmp_path: Path) -> None:
    (wanted,) = _verdict(tmp_path, slow="data").would_change
    assert wanted.startswith("a trace of more steps than 3")


@pytest.mark.parametrize("steps", [2, 3, 4])
def test_one_long_first_step_accuses_nobody(tmp_path: Path, steps: int) -> None:
    assert _verdict(tmp_path, steps=steps, when=lambda step: step == 0).suspects == ()


def test_one_step_says_that_it_cannot_be_judged(tmp_path: Path) -> None:
    found = _verdict(tmp_path, steps=1)
    assert found.suspects == ()
    assert "fewer than two ranks or two steps" in _of_stages(found)


def test_no_silent_zero(tmp_path: Path) -> None:
    found = _verdict(tmp_path, kernel=_NEW_KERNEL, grouped=False, steps=14)
    assert found.suspects == () and found.outcome is not Outcome.HEALTHY
    assert "no communication was recognised" in _of_stages(found)
    assert any("cross_device_reduce_1stage" in warning.statement for warning in found.warnings)


@pytest.mark.parametrize(
    "kernel", ["ncclSymkDevKernel_AllReduce_AGxLL(ncclSymkDevWorkArgs)", "ncclDevKernel_Generic_4(x)", "rcclGenericKernel"]
)
def test_kernels_of_newer_libraries_are_communication(tmp_path: Path, kernel: str) -> None:
    assert _accused(_verdict(tmp_path, kernel=kernel, grouped=False)) == [((2,), "data", "suspect")]


def test_what_a_process_group_launches_is_communication_whatever_its_name(tmp_path: Path) -> None:
    assert _accused(_verdict(tmp_path, kernel=_NEW_KERNEL)) == [((2,), "data", "suspect")]


def test_calls_are_joined_by_their_numbers(tmp_path: Path) -> None:
    found = _verdict(tmp_path, slow="backward", numbered=True)
    assert _accused(found) == [((2,), "backward", "suspect")]
    assert any("waiting is known from collectives" in evidence.statement for evidence in found.suspects[0].evidence)
