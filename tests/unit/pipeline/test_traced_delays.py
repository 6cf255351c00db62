"""Who held up a long step of a pipeline of which only profiler traces exist."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import TrainingJob
from forensics.fixtures.simulator.simulation import simulate
from forensics.model import Cause, Confidence, Outcome, Verdict
from forensics.rules.diagnosis import diagnose
from tests.unit.pipeline.simulated import traced_case_of
from tests.unit.pipeline.test_delays import JOB, named

DEEP = replace(JOB, microbatches=8, model=replace(JOB.model, layers=8))


def verdict(
    faults: str, folder: Path, job: TrainingJob = JOB, *, steps: int = 12, seed: int = 3
) -> tuple[Verdict, list[int | None]]:
    """What is said of the traces, and the microbatch that each fault struck."""
    made = simulate(job, [parse(each) for each in faults.split(" ")], seed, iterations=steps)
    with traced_case_of(made, folder, steps) as connection:
        return diagnose(connection), [each.position.op.microbatch for each in made.injections if each.position]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("compute-delay@rank6:900ms/backward", Cause.COMPUTE_SLOW),
        ("compute-delay@rank13:700ms/forward", Cause.COMPUTE_SLOW),
        ("host-delay@rank6:1500ms/forward", Cause.HOST_STALL),
    ],
)
@pytest.mark.first(1)
def test_a_delayed_pass_is_found_in_traces_alone(fault: str, cause: Cause, tmp_path: Path) -> None:
    found, (microbatch,) = verdict(fault, tmp_path)
    (suspect,) = found.suspects
    assert (found.outcome, suspect.rules, suspect.cause) == (Outcome.SLOWDOWN, ("FX175",), cause)
    assert suspect.ranks == (int(fault.split("@rank")[1].split(":")[0]),)
    assert (suspect.stage.name, suspect.stage.microbatch) == (fault.rsplit("/")[-1], microbatch)
    assert suspect.stage.pipeline_stage == JOB.parallel.stage_of(suspect.ranks[0])[0]
    assert suspect.confidence is Confidence.LIKELY


@pytest.mark.parametrize(
    "job", [replace(DEEP, schedule="interleaved", chunks=2), replace(DEEP, schedule="gpipe")], ids=["interleaved", "gpipe"]
)
@pytest.mark.slow
def test_other_schedules_are_read_as_well(job: TrainingJob, tmp_path: Path) -> None:
    found, (microbatch,) = verdict("compute-delay@rank6:900ms/forward", tmp_path, job)
    assert named(found) == [(6,)]
    assert (found.suspects[0].stage.name, found.suspects[0].stage.microbatch) == ("forward", microbatch)


@pytest.mark.slow
def test_a_sound_pipeline_accuses_nobody(tmp_path: Path) -> None:
    found, _ = verdict("none", tmp_path)
    assert found.suspects == ()
