"""Which passes of a program make calls that could be counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forensics.fixtures.simulator.between_passes import makes_no_call, pass_of
from forensics.fixtures.simulator.job import Parallelism
from forensics.fixtures.simulator.program import Op, program
from forensics.fixtures.simulator.settings import changed
from tests.unit.simulator.small_jobs import DENSE

JOB = replace(DENSE, parallel=Parallelism(tensor=2, pipeline=4, data=2), microbatches=8)


def silent(schedule: str, stage: int) -> list[Op]:
    ops = program(changed(JOB, [f"schedule={schedule}"]), stage, 0)
    return [op for number, op in enumerate(ops) if makes_no_call(ops, number)]


@pytest.mark.parametrize("stage", range(1, 4))
def test_passes_for_gradients_of_weights_call_nothing(stage: int) -> None:
    """Those of the first stage follow on the pass whose gradients they are, and look like its end."""
    found = silent("zero-bubble", stage)
    assert found and {op.kind for op in found} == {"kernel"} and {pass_of(op)[0] for op in found} == {False}


@pytest.mark.parametrize("stage", range(4))
def test_all_other_passes_call_something(stage: int) -> None:
    assert silent("1f1b", stage) == []
