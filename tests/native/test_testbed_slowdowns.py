"""Jobs of the test bed that move and are slow, diagnosed from the real collector's logs alone: who, and is it the network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.model import Anomaly, Cause, Component, Granularity, Members, Outcome, StageName, Suspect, Verdict
from forensics.rules.diagnosis import diagnose
from tests.native.shim_scenarios import SQUARE, loaded
from tests.native.testbed import Shape, built, start

pytestmark = [pytest.mark.slow, pytest.mark.alone]

STEPS = replace(SQUARE, steps=20)
RING = Shape(dp=4, per_host=1, steps=20)
STAGES = Shape(pp=4, dp=2, per_host=1, steps=12)


def slowed(shim: Path, folder: Path, fault: str, shape: Shape = STEPS, **env: str) -> Verdict:
    """The verdict on the logs of a job that ran to its end."""
    with start(built(), folder / "job", shape, fault, env={**loaded(shim, folder / "logs"), **env}) as job:
        assert job.finish() == [0] * shape.world
    return diagnose(open_case([folder / "logs"]))


def only(verdict: Verdict) -> Suspect:
    assert verdict.outcome is Outcome.SLOWDOWN, verdict.summary
    (found,) = verdict.suspects
    assert found.anomaly is Anomaly.FAIL_SLOW and found.evidence
    return found


@pytest.mark.parametrize(
    ("fault", "shape", "rank"),
    [
        ("link_slow:rank=0,us=1500", STEPS, 0),
        ("link_slow:rank=3,us=800", STEPS, 3),
        ("link_slow:rank=2,us=1000", RING, 2),
        ("link_slow:rank=1,us=1000,step=6", STEPS, 1),
    ],
)
def test_a_slow_nic(fault: str, shape: Shape, rank: int, shim: Path, tmp_path: Path) -> None:
    found = only(slowed(shim, tmp_path, fault, shape))
    assert (found.ranks, found.members, found.granularity) == ((rank,), Members.EACH, Granularity.NIC)
    assert (found.cause, found.stage.component) == (Cause.NETWORK_SLOW, Component.COMMUNICATION)


@pytest.mark.parametrize(
    ("fault", "shape", "ends", "stage"),
    [
        ("link_slow:rank=0,peer=2,us=1500,oneway=1", STEPS, (0, 2), StageName.FORWARD),
        ("link_slow:rank=3,peer=1,us=1500,oneway=1", STEPS, (1, 3), StageName.BACKWARD),
        ("link_slow:rank=0,peer=1,us=3000", STEPS, (0, 1), StageName.BACKWARD),
        ("link_slow:rank=2,peer=3,us=1000,oneway=1", RING, (2, 3), StageName.UNKNOWN),
        ("link_slow:rank=0,us=1000,oneway=1", Shape(dp=2, per_host=1, steps=20), (0, 1), StageName.UNKNOWN),
    ],
)
def test_a_slow_link_names_both_ends(
    fault: str, shape: Shape, ends: tuple[int, ...], stage: StageName, shim: Path, tmp_path: Path
) -> None:
    found = only(slowed(shim, tmp_path, fault, shape))
    assert (found.ranks, found.members, found.granularity) == (ends, Members.ONE_OF, Granularity.LINK)
    assert (found.cause, found.stage.name) == (Cause.NETWORK_SLOW, stage)


@pytest.mark.parametrize(
    ("fault", "shape", "rank"),
    [
        ("late:rank=1,us=20000", STEPS, 1),
        ("late:rank=2,us=8000", STEPS, 2),
        ("late:rank=3,us=10000", RING, 3),
        ("late:rank=5,us=20000", STAGES, 5),
        ("late:rank=0,us=20000;jitter:us=1000", STEPS, 0),
    ],
)
def test_a_rank_that_comes_late_is_no_fault_of_the_network(
    fault: str, shape: Shape, rank: int, shim: Path, tmp_path: Path
) -> None:
    found = only(slowed(shim, tmp_path, fault, shape))
    assert (found.ranks, found.rules) == ((rank,), ("FX172",))
    assert found.cause not in (Cause.NETWORK_SLOW, Cause.PROXY_DELAY)
    assert found.stage.component is not Component.COMMUNICATION


@pytest.mark.parametrize("fault", ["", "jitter:us=500", "jitter:us=3000", "link_slow:us=300"])
def test_what_strikes_all_alike_accuses_nobody(fault: str, shim: Path, tmp_path: Path) -> None:
    verdict = slowed(shim, tmp_path, fault)
    assert verdict.outcome in (Outcome.HEALTHY, Outcome.INCONCLUSIVE) and not verdict.suspects


def test_without_the_profiler_hook_nothing_is_ruled_out(shim: Path, tmp_path: Path) -> None:
    verdict = slowed(shim, tmp_path, "link_slow:rank=0,us=1500", NCCL_PROFILER_PLUGIN="none")
    assert verdict.suspects == ()
    missing = {outcome.rule for outcome in verdict.ruled_out if outcome.status == "not_applicable"}
    assert {"FX171", "FX172", "FX173"} <= missing
