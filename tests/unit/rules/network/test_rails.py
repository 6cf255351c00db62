"""Over whose NIC a message may leave: rails, hosts and communicators."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import MS, Model, Parallelism, TrainingJob
from forensics.fixtures.simulator.simulation import simulate
from forensics.fixtures.simulator.topology import Fabric
from forensics.model import Cause, Verdict
from forensics.rules.reductions.ranks.rails import may_send_on
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from tests.recordings.verdicts import verdict_of

HOSTS = Roster({rank: RankFacts(rank, host=f"node{rank // 4}") for rank in range(8)}, 8)
PIPELINE = (0, 2, 4, 6)
NARROW = TrainingJob(
    "narrow", Parallelism(tensor=2, pipeline=8, data=2), Model(8, 10 * MS, 64 << 20, 1 << 28), microbatches=8,
    fabric=Fabric(pxn=True),
)  # fmt: skip


def test_a_message_to_another_rail_may_leave_over_a_rank_of_its_communicator_there() -> None:
    assert may_send_on(2, 4, PIPELINE, HOSTS) == (0,)
    assert may_send_on(4, 2, PIPELINE, HOSTS) == (6,)


def test_none_sends_on_what_stays_on_its_rail_or_in_its_host() -> None:
    assert may_send_on(0, 4, PIPELINE, HOSTS) == () and may_send_on(0, 2, PIPELINE, HOSTS) == ()
    assert may_send_on(2, 4, (2, 4), HOSTS) == (), "NCCL takes members only"
    assert may_send_on(2, 9, PIPELINE, HOSTS) == (), "a host that nobody knows"


def diagnosed(fault: str, folder: Path, *sources: str) -> Verdict:
    made = simulate(NARROW, [parse(fault)], 24, iterations=6 if "slow" in fault else None, after_s=20)
    lost = losses.drawn(made.job.parallel.world, made.random("losses"), only=sources)
    bundle.write(made, bundle.options_of(made, timing=True), lost, folder / "bundle.tar")
    return verdict_of(folder / "bundle.tar")


@pytest.mark.slow
def test_a_nic_that_is_down_is_among_those_named_for_messages_that_others_send_over_it(tmp_path: Path) -> None:
    verdict = diagnosed("nic-down@rank14", tmp_path, "shim", "recorder")
    assert verdict.suspects and all(14 in suspect.ranks for suspect in verdict.suspects)
    assert not any(suspect.cause is Cause.PROXY_DELAY for suspect in verdict.suspects)


@pytest.mark.slow
def test_a_slow_nic_is_named_by_recorders_alone_for_what_others_send_over_it(tmp_path: Path) -> None:
    verdict = diagnosed("nic-slow@rank13:5+before", tmp_path, "recorder")
    assert all(13 in suspect.ranks for suspect in verdict.suspects) and verdict.suspects
