"""A rank that leaves out a message is named for it, with the pass in which those that work in step with it made it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import Parallelism
from forensics.fixtures.simulator.losses import Losses
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.fixtures.simulator.truth import truth
from forensics.model import Cause, Verdict
from forensics.rules.diagnosis import diagnose
from tests.recordings.scenarios import recorded
from tests.unit.pipeline.simulated import case_of
from tests.unit.pipeline.test_delays import JOB

_PARALLEL = Parallelism(tensor=2, pipeline=4, data=2)


def stopped(fault: str, folder: Path, seed: int, missing: str = "") -> tuple[Verdict, Simulation]:
    made = simulate(replace(JOB, parallel=_PARALLEL), [parse(fault)], seed, iterations=6, onset=3)
    with case_of(made, folder, missing=missing) as case:
        return diagnose(case), made


@pytest.mark.first(2)
@pytest.mark.parametrize(("rank", "seed"), [(6, 1), (9, 2), (6, 5), (9, 6)])
def test_a_message_that_one_rank_leaves_out(rank: int, seed: int, tmp_path: Path) -> None:
    found, made = stopped(f"p2p-unmatched@rank{rank}", tmp_path, seed)
    stage = truth(made, Losses())["faults"][0]["stage"]
    (suspect,) = found.suspects
    assert (suspect.ranks, suspect.rules[0], suspect.cause) == ((rank,), "FX120", Cause.P2P_UNMATCHED)
    assert (suspect.stage.name, suspect.stage.microbatch) == (stage["name"], stage["microbatch"])


def test_the_receive_of_the_third_microbatch() -> None:
    """VenusTrace section 5.4, case 1."""
    stage = diagnose(recorded("receive-left-out")).suspects[0].stage
    assert (stage.direction, stage.operation, stage.microbatch, stage.pipeline_stage) == ("forward", "recv", 2, 1)


@pytest.mark.parametrize(("fault", "missing"), [("order-swap@rank6", ""), ("p2p-unmatched@rank6", "7")], ids=["swap", "alone"])
def test_without_a_message_less_than_its_equals_no_rank_left_one_out(fault: str, missing: str, tmp_path: Path) -> None:
    found, _ = stopped(fault, tmp_path, 2, missing)
    assert not [each for each in found.suspects if each.cause is Cause.P2P_UNMATCHED]
