"""Where the passes of a step came to a halt: at the end of a pipeline only call paths tell the two directions apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import Parallelism
from forensics.fixtures.simulator.simulation import simulate
from forensics.model import StageName, StageRef
from forensics.rules.diagnosis import diagnose
from forensics.rules.located import _turned
from forensics.rules.reductions.pipeline.call_place import CallPlace
from forensics.rules.reductions.pipeline.halts import HaltedPass
from tests.unit.pipeline.simulated import case_of
from tests.unit.simulator.small_jobs import DENSE

JOB = replace(DENSE, parallel=Parallelism(tensor=2, pipeline=4, data=2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("direction", "shown", "stated", "either"),
    [
        ("backward", "paths", "unknown", False),
        ("backward", "calls", "unknown", False),
        ("backward", "", "unknown", True),
        ("forward", "", "forward", False),
    ],
    ids=["by call paths", "by calls", "by messages", "before its message"],
)
def test_the_last_stage_turns_one_microbatch_round(
    direction: str, shown: str, stated: str, either: bool, tmp_path: Path
) -> None:
    """Its forward pass sends nothing: either pass may have halted where it calls other things than the stage before it.

    Behind the last call of the one pass, and before the first of the other, the host may be in either; no stack shows which.
    """
    rank = next(rank for rank in range(16) if JOB.parallel.stage_of(rank)[0] == 3)
    made = simulate(JOB, [parse(f"host-hang@rank{rank}/{direction}")], 3, iterations=10)
    position = made.injections[0].position
    assert position is not None
    with case_of(made, tmp_path, timing=True) as connection:
        if shown != "paths":
            connection.execute("UPDATE operations SET call_path = NULL")
        if not shown:
            connection.execute("UPDATE operations SET count = count / 2 WHERE rank >= 12 AND NOT is_p2p AND count > 1")
        (suspect,) = diagnose(connection).suspects
    assert (suspect.ranks, suspect.stage.name, suspect.stage.microbatch) == ((rank,), stated, position.op.microbatch)
    (halted,) = [line.statement for line in suspect.evidence if "its pipeline halted" in line.statement]
    assert ("behind it" in halted) is either


BACKWARD_0, FORWARD_1 = CallPlace("backward", 0, None, 3), CallPlace("forward", 1, None, 3)


@pytest.mark.parametrize(("behind", "microbatch"), [(BACKWARD_0, 0), (FORWARD_1, None), (None, None)])
def test_the_microbatch_is_said_where_both_passes_are_of_it(behind: CallPlace | None, microbatch: int | None) -> None:
    """With all forward passes first (GPipe) the next one of the last stage is of another microbatch."""
    halted = HaltedPass((6, 7), CallPlace("forward", 0, None, 3), True, behind)
    assert _turned(StageRef(pipeline_stage=3), [halted]).microbatch == microbatch
    assert _turned(StageRef(name=StageName.DATA), [halted]).microbatch is None
