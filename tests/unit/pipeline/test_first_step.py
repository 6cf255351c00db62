"""Places in a step of which no whole one is recorded: jobs that hang in their first one, and steps of different lengths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import TrainingJob
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.rules.reductions.pipeline.call_places import CallPlace, CallPlaces
from forensics.rules.reductions.steps.records import Recorded
from tests.unit.pipeline.simulated import case_of
from tests.unit.pipeline.test_call_places import JOBS

slow = pytest.mark.slow


def hung(job: TrainingJob, rank: int, phase: str, onset: int) -> Simulation:
    """A job whose run is all that it ever did."""
    made = simulate(job, [parse(f"host-hang@rank{rank}/{phase}")], 11 + rank, iterations=onset + 2, onset=onset)
    return replace(made, first_step=0, job=replace(made.job, first_step=0))


def found_and_true(made: Simulation, rank: int, phase: str, folder: Path) -> tuple[CallPlace | None, CallPlace]:
    position = made.injections[0].position
    assert position is not None
    with case_of(made, folder) as connection:
        found = CallPlaces(connection, Recorded(connection)).of_stop(rank, phase)
    return found, CallPlace(phase, position.op.microbatch, stage=made.job.parallel.stage_of(rank)[0])


@pytest.mark.parametrize("name", ["1F1B", pytest.param("GPipe", marks=slow), pytest.param("sequence parallel", marks=slow)])
@pytest.mark.parametrize(
    ("rank", "phase"), [(5, "forward"), (5, "backward"), (15, "forward"), (15, "backward"), (0, "backward")]
)
def test_messages_count_microbatches_in_the_first_step_of_a_job(name: str, rank: int, phase: str, tmp_path: Path) -> None:
    found, true = found_and_true(hung(JOBS[name], rank, phase, 0), rank, phase, tmp_path)
    assert found is not None
    assert (found.direction, found.microbatch, found.stage) == (true.direction, true.microbatch, true.stage)


@pytest.mark.parametrize(
    "name", [pytest.param("interleaved", marks=slow), "two stages, interleaved", pytest.param("two stages", marks=slow)]
)
@pytest.mark.parametrize(
    ("rank", "phase"), [(0, "forward"), (0, "backward"), (5, "backward"), (15, "forward"), (15, "backward")]
)
def test_chunks_that_may_have_come_round_have_no_wrong_number(name: str, rank: int, phase: str, tmp_path: Path) -> None:
    """Messages of a second chunk look like those of later microbatches: what they cannot tell is left out."""
    found, true = found_and_true(hung(JOBS[name], rank, phase, 0), rank, phase, tmp_path)
    for name in ("direction", "microbatch", "stage"):
        assert found is None or getattr(found, name) in (None, getattr(true, name))


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_microbatches_of_different_lengths_are_of_one_step_all_the_same(phase: str, tmp_path: Path) -> None:
    found, true = found_and_true(hung(replace(JOBS["1F1B"], shortest=4), 6, phase, 2), 6, phase, tmp_path)
    assert found is not None
    assert (found.direction, found.microbatch, found.stage) == (true.direction, true.microbatch, true.stage)
