"""A job that was slow and then stopped: who stopped it is named first, and who was slow before is said apart from that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.simulation import simulate
from forensics.model import Anomaly, Outcome, Verdict
from tests.recordings.verdicts import verdict_of
from tests.unit.simulator.small_jobs import DENSE

JOB = replace(DENSE, microbatches=4)
SLOW = "gpu-throttled@rank5:200W+before"


def verdict(folder: Path, *faults: str, timing: bool = True) -> Verdict:
    """Of the dumps and stacks of a job with these faults; the members of its tensor-parallel groups are pairs: (0, 1) ..."""
    made = simulate(JOB, [parse(fault) for fault in faults], 31, iterations=8, after_s=40)
    options = bundle.options_of(made, timing=timing)
    bundle.write(made, options, losses.drawn(JOB.parallel.world, made.random("losses")), folder / "bundle.tar")
    return verdict_of(folder / "bundle.tar")


def faults_of(found: Verdict) -> list[tuple[tuple[int, ...], Anomaly]]:
    return [(suspect.ranks, suspect.anomaly) for suspect in found.suspects]


@pytest.mark.slow
def test_who_stopped_the_job_comes_first_and_who_was_slow_is_said_apart(tmp_path: Path) -> None:
    found = verdict(tmp_path, "host-hang@rank10", SLOW)
    assert found.outcome is Outcome.HANG
    assert faults_of(found) == [((10,), Anomaly.FAIL_STOP), ((5,), Anomaly.FAIL_SLOW)]
    assert {suspect.fault for suspect in found.suspects} == {1, 2}
    assert found.suspects[1].evidence[0].statement.startswith("before the job stopped rank 5 arrived last")
    assert any(5 in victims.ranks for victims in found.victims), "it waits for rank 10 like the others"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "timing", "named"),
    [
        (("host-hang@rank10",), True, [(10,)]),
        (("host-hang@rank10", SLOW), False, [(10,)]),
        (("host-hang@rank5", SLOW), True, [(5,)]),
    ],
    ids=["sound-before", "no-times-inside-calls", "the-same-rank"],
)
def test_who_is_not_said_to_have_been_slow(
    faults: tuple[str, ...], timing: bool, named: list[tuple[int, ...]], tmp_path: Path
) -> None:
    assert [suspect.ranks for suspect in verdict(tmp_path, *faults, timing=timing).suspects] == named
