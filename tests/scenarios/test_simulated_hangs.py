"""Simulated hangs, from physics to verdict: the right rank is named, or the group that the evidence can name."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.fixtures.simulator.truth import truth
from forensics.model import Cause, Outcome, Verdict
from forensics.rules.diagnosis import diagnose
from tests.unit.simulator.small_jobs import DENSE

pytestmark = pytest.mark.slow


def verdict(fault: str, seed: int, folder: Path, **options: object) -> tuple[Simulation, Verdict]:
    made = simulate(DENSE, [parse(fault)], seed)
    path = folder / "bundle.tar"
    bundle.write(made, bundle.options_of(made, **options), losses.Losses(), path)
    return made, diagnose(open_case([path]))


@pytest.mark.parametrize(
    ("fault", "seed"),
    [
        ("host-hang@random/forward", 1),
        ("host-hang@random/backward", 2),
        ("dataloader-stall", 1),
        ("checkpoint-stall", 2),
        ("callback-stall", 1),
        ("gil-held", 1),
        ("cuda-error", 2),
        ("process-killed", 1),
        ("process-oom", 2),
        ("process-stopped", 1),
        ("mismatched-size", 1),
        ("mismatched-kind", 2),
        ("transmission-hang", 1),
        ("transmission-hang", 2),
    ],
)
def test_the_first_suspect_is_who_the_evidence_can_name(fault: str, seed: int, tmp_path: Path) -> None:
    made, found = verdict(fault, seed, tmp_path)
    expected = truth(made, losses.Losses())["faults"][0]["determinable"]
    assert found.outcome is Outcome.HANG
    assert list(found.suspects[0].ranks) == expected["ranks"]


@pytest.mark.parametrize("fault", ["dataloader-stall", "checkpoint-stall", "gil-held", "process-killed", "process-stopped"])
def test_the_cause_is_named_where_something_shows_it(fault: str, tmp_path: Path) -> None:
    made, found = verdict(fault, 11, tmp_path)
    assert found.suspects[0].cause.value in truth(made, losses.Losses())["faults"][0]["accepted_causes"]


@pytest.mark.parametrize("fault", ["skipped-collective", "extra-collective"])
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_call_among_calls_that_look_alike_is_found_by_counting(fault: str, seed: int, tmp_path: Path) -> None:
    made, found = verdict(fault, seed, tmp_path)
    assert list(found.suspects[0].ranks) == truth(made, losses.Losses())["faults"][0]["ranks"]
    assert found.suspects[0].cause is Cause.EXTRA_OR_MISSING_COLLECTIVE


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_who_takes_two_groups_in_another_order_than_ever_is_named(seed: int, tmp_path: Path) -> None:
    made, found = verdict("order-swap", seed, tmp_path)
    assert list(found.suspects[0].ranks) == truth(made, losses.Losses())["faults"][0]["ranks"]
    assert found.suspects[0].cause is Cause.DEADLOCK


def test_a_job_without_a_fault_accuses_nobody(tmp_path: Path) -> None:
    _, found = verdict("none", 1, tmp_path)
    assert found.outcome is not Outcome.HANG and not found.suspects
