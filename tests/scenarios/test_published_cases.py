"""The case studies of Mycroft section 8 on small simulated jobs: one channel of several, a rank without data, a rank inside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import MS, Model, Parallelism, TrainingJob
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.fixtures.simulator.sources import USUAL
from forensics.fixtures.simulator.truth import truth
from forensics.model import Cause, Component, Outcome, Verdict
from forensics.rules.diagnosis import diagnose
from tests.unit.simulator.small_jobs import DENSE

pytestmark = pytest.mark.slow

SHARDED = TrainingJob(
    "sharded", Parallelism(data=8), Model(4, 20 * MS, 16 << 20, 1 << 30), microbatches=1, data_mode="fsdp", gpus_per_host=2
)


def judged(job: TrainingJob, fault: str, folder: Path, sources: tuple[str, ...] = ()) -> tuple[Simulation, Verdict]:
    made = simulate(job, [parse(fault)], 5, iterations=14, onset=6)
    path = folder / "bundle.tar"
    bundle.write(made, bundle.options_of(made), losses.Losses(sources=USUAL | set(sources)), path)
    return made, diagnose(open_case([path]))


def test_one_of_four_channels_is_slow_and_the_other_three_speak_for_the_network(tmp_path: Path) -> None:
    job = replace(SHARDED, fabric=replace(SHARDED.fabric, channels=4))
    made, found = judged(job, "channel-slow@random:40%+lasting", tmp_path, ("shim",))
    (suspect,) = found.suspects
    assert found.outcome is Outcome.SLOWDOWN and suspect.cause is Cause.NETWORK_SLOW
    assert set(made.injections[0].ranks) <= set(suspect.ranks)
    assert suspect.resource is not None and suspect.resource.channel is not None


def test_a_rank_without_data_explains_why_its_peers_wait_in_a_collective(tmp_path: Path) -> None:
    made, found = judged(DENSE, "dataloader-stall", tmp_path)
    first = found.suspects[0]
    assert (found.outcome, first.cause) == (Outcome.HANG, Cause.DATALOADER_STALL)
    assert set(first.ranks) == set(made.injections[0].ranks)


def test_where_all_entered_and_no_stack_is_odd_the_flows_tell_whose_transfer_it_is(tmp_path: Path) -> None:
    made, found = judged(DENSE, "transmission-hang", tmp_path, ("shim",))
    first = found.suspects[0]
    stated = truth(made, losses.Losses(sources=USUAL | {"shim"}))["faults"][0]["determinable"]
    assert (found.outcome, list(first.ranks)) == (Outcome.HANG, stated["ranks"])
    assert first.stage.component is Component.COMMUNICATION
