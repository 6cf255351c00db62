"""Stages of sharded and accumulating jobs (StageFrontier section 6.4, E7 and E8): one rank late by 180 ms in every step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forensics.case.build import open_case
from forensics.fixtures.simulator import bundle
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.simulation import simulate
from forensics.fixtures.simulator.writers.interface import Recorder
from forensics.fixtures.simulator.writers.stage_vectors import stage_vectors
from forensics.fixtures.suites.frontier import job
from forensics.model import Outcome, Verdict
from forensics.rules.diagnosis import diagnose

pytestmark = pytest.mark.slow
STAGES = {"data": "data", "forward-host": "forward", "callback": "callbacks"}
SHAPES: dict[str, dict[str, Any]] = {
    "fsdp": {"data_mode": "fsdp"}, "zero1": {"data_mode": "zero1"}, "accumulation": {"microbatches": 4},
}  # fmt: skip


def recorded(shape: str, fault: str, size: int, folder: Path) -> tuple[tuple[int, ...], Verdict]:
    """The ranks of the fault, and the verdict on what a recorder of host times wrote."""
    base = job(8)
    made = simulate(
        # One clock, as the paper has it: whether hosts whose clocks nobody keeps can be distinguished is another question.
        replace(base, parallel=replace(base.parallel, data=size), gpus_per_host=size, **SHAPES[shape]),
        [parse(fault)],
        3,
        iterations=40,
        onset=2,
        after_s=60.0,
    )
    how = Recorder(timed=(), every=0)
    for name, content in stage_vectors(made.run, made.places, made.capture_ns, bundle.options_of(made), recorder=how):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    connection = open_case([folder])
    verdict = diagnose(connection)
    connection.close()
    return tuple(rank for injection in made.injections for rank in injection.ranks), verdict


@pytest.mark.parametrize("size", [8, 16])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fault", STAGES)
def test_the_late_stage_and_rank_are_named(fault: str, shape: str, size: int, tmp_path: Path) -> None:
    ranks, verdict = recorded(shape, f"frontier-{fault}@random:180ms", size, tmp_path)
    first, *_ = verdict.suspects
    assert (first.ranks, first.stage.name, verdict.outcome) == (ranks, STAGES[fault], Outcome.SLOWDOWN)


@pytest.mark.parametrize("shape", SHAPES)
def test_without_a_fault_nobody_is_named(shape: str, tmp_path: Path) -> None:
    assert not recorded(shape, "none", 8, tmp_path)[1].suspects


@pytest.mark.parametrize("shape", SHAPES)
def test_a_slow_backward_leads_the_account_where_no_rank_is_seen(shape: str, tmp_path: Path) -> None:
    _, verdict = recorded(shape, "frontier-backward@random:180ms", 8, tmp_path)
    shares = verdict.frontier[-1].shares or ()
    assert max(zip(shares, verdict.frontier[-1].stages, strict=True))[1] == "backward"
    assert not [suspect for suspect in verdict.suspects if suspect.ranks]
