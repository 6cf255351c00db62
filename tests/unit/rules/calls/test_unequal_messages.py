"""Exchanges in which one rank has other splits than its peers: sent and taken differ at the two ends, by logs of the calls."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import MS, Model, Parallelism, TrainingJob
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.model import Cause, Members, Outcome, Verdict
from forensics.rules.reductions.mismatch.unequal_messages import Unequal, odd_ones
from tests.recordings.verdicts import verdict_of

JOB = TrainingJob(
    "experts", Parallelism(data=4, expert=4), Model(1, 20 * MS, 8 << 20, 64 << 20, is_moe=True, routing_skew=0.3),
    microbatches=2, gpus_per_host=1, data_mode="zero1",
)  # fmt: skip


def message(sender: int, receiver: int) -> Unequal:
    return Unequal("nccl:a", sender, receiver, (7, 9), 512, 1024, "pending", (None, None), ("a", "b"))


def diagnosed(made: Simulation, folder: Path, *sources: str) -> Verdict:
    lost = losses.drawn(made.job.parallel.world, made.random("losses"), only=sources)
    bundle.write(made, bundle.options_of(made, timing=True), lost, folder / "bundle.tar")
    return verdict_of(folder / "bundle.tar")


@cache
def mismatched(rank: int) -> Simulation:
    """The first seed that lets this rank bring other sizes to an exchange of tokens."""
    for seed in range(1, 40):
        made = simulate(JOB, [parse(f"mismatched-size@rank{rank}")], seed, iterations=3, after_s=20)
        (effect,) = made.injections[0].deviations
        common = made.run.recordings[-1].ops
        if any(op.name == "all_to_all" for op in effect.change(common) if op not in common):
            return made
    raise AssertionError("no seed strikes an exchange")


def test_a_rank_with_other_splits_than_its_peers_is_named(tmp_path: Path) -> None:
    verdict = diagnosed(mismatched(2), tmp_path, "shim")
    (suspect,) = verdict.suspects
    assert verdict.outcome is Outcome.HANG and suspect.ranks == (2,) and suspect.cause is Cause.SHAPE_MISMATCH
    assert "which takes" in suspect.evidence[1].statement or "which sends" in suspect.evidence[1].statement


@pytest.mark.slow
def test_recorders_alone_tell_the_group_only(tmp_path: Path) -> None:
    verdict = diagnosed(mismatched(2), tmp_path, "recorder")
    assert all(len(suspect.ranks) == 4 and suspect.members is Members.ONE_OF for suspect in verdict.suspects)


@pytest.mark.slow
@pytest.mark.parametrize("sources", [("shim",), ("recorder",), ("recorder", "shim")])
def test_uneven_splits_of_a_sound_job_are_no_mismatch(sources: tuple[str, ...], tmp_path: Path) -> None:
    verdict = diagnosed(simulate(replace(JOB, ahead=64), [parse("none")], 5, iterations=4), tmp_path, *sources)
    assert not verdict.suspects


def test_who_is_odd() -> None:
    assert odd_ones([message(2, 0), message(1, 2), message(2, 3)]) == (2,)
    assert odd_ones([message(2, 0)]) == (), "one message has two ends"
    assert odd_ones([message(2, 0), message(0, 2)]) == ()
    assert odd_ones([message(2, 0), message(1, 3)]) == ()
