"""A host that makes its calls several times as slowly in the long steps is named; what holds up its ranks otherwise is not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.simulation import simulate
from forensics.model import Cause, Confidence
from forensics.rules.engine import run, supply_of
from forensics.rules.reductions.hardware.cores import BusyHosts, TakenCores
from forensics.rules.reductions.pipeline.slow_callers import SlowCallers, findings_of_callers, slow_callers
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.steps.records import Names, Record
from forensics.rules.reductions.steps.times import Steps, StepTimes
from forensics.rules.slow import step_delayed
from tests.recordings.scenarios import recorded
from tests.unit.pipeline.simulated import case_of
from tests.unit.pipeline.test_slow_hosts import JOB

US, CALLS, STEPS, LONG = 1_000, 40, 20, range(14, 20)
SLOW = (4, 5, 6, 7)
ALL = dict.fromkeys(SLOW, 46.0)
ROSTER = Roster({rank: RankFacts(rank, host=f"h{rank // 4}") for rank in range(16)}, 16)


def steps_of(rank: int, between_us: Mapping[int, float], usual_us: float = 12.0) -> Steps:
    """Steps whose calls follow on each other at once, but for every third one, which waits for the device."""
    apart = np.array([[between_us.get(step, usual_us) * US] * CALLS for step in range(STEPS)])
    apart[:, ::3] = 9_000 * US
    made = np.cumsum(apart.ravel()).astype(np.int64)
    columns: dict[str, Any] = {each.name: np.zeros(len(made), np.int64) for each in fields(Record)[2:]}
    record = Record(
        rank, Names((), ()), **(columns | {"enqueued_ns": made, "step": np.full(len(made), np.iinfo(np.int64).min)})
    )
    begin = np.arange(STEPS, dtype=np.int64) * CALLS
    order = (begin[:, None] + np.arange(CALLS)).astype(np.int32)
    return Steps(record, np.arange(STEPS), begin, order, np.ones(STEPS))


def found_in(
    slow: Mapping[int, float],
    steps: Collection[int] = LONG,
    usual_us: float = 12.0,
    long: Collection[int] = LONG,
    seen: Collection[int] = range(16),
) -> SlowCallers:
    """`slow` ranks take so many us from one call to the next in some steps; the steps of the job in `long` are longer."""
    length = np.array([1.4e9 if step in long else 1e9 for step in range(STEPS)]) + np.arange(STEPS) % 3 * 1e6
    ranks = {rank: steps_of(rank, dict.fromkeys(steps, slow.get(rank, usual_us)), usual_us) for rank in seen}
    return slow_callers(StepTimes(ranks, np.arange(STEPS), length), ROSTER)


def test_the_host_whose_ranks_all_make_calls_slowly_in_the_long_steps() -> None:
    (each,) = found_in(ALL)
    assert (each.host, each.ranks, each.long, each.steps) == ("h1", SLOW, 6, 20)
    assert each.factor == pytest.approx(3.83, abs=0.05) and each.others == pytest.approx(1.0)
    assert each.lost_ns == pytest.approx(6 * 0.4e9, rel=0.02) and each.share == pytest.approx(0.4 / 1.4, rel=0.02)


def test_all_ranks_of_the_host_are_named_also_where_records_of_some_are_cut() -> None:
    (each,) = found_in(ALL, seen=[0, 2, 4, 5, 6, 8, 9, 10, 11, 13, 15])
    assert each.ranks == SLOW


@pytest.mark.parametrize(
    "given",
    [
        {"slow": {4: 45.0, 5: 45.0, 6: 45.0}},
        {"slow": dict.fromkeys(range(4, 12), 45.0)},
        {"slow": ALL | {12: 20.0}},
        {"slow": ALL, "steps": range(20)},
        {"slow": ALL, "steps": range(7, 20)},
        {"slow": ALL, "steps": range(14, 16)},
        {"slow": dict.fromkeys(SLOW, 20.0)},
        {"slow": ALL, "long": range(18, 20)},
        {"slow": dict.fromkeys(SLOW, 2_000.0), "usual_us": 500.0},
        {"slow": {}},
        {"slow": ALL, "seen": [*range(12), 12]},
        {"slow": ALL, "seen": [*range(5), *range(8, 16)]},
    ],
    ids=[
        "all of its ranks but one", "two hosts", "another one a little", "always", "since before the steps were long",
        "in few of the long steps", "a little", "few long steps", "calls that wait for devices", "nobody",
        "a host of which one record is whole", "one record of the slow one",
    ],
)  # fmt: skip
def test_what_does_not_show_a_host_names_nobody(given: Mapping[str, Any]) -> None:
    assert found_in(**given) == ()


def test_a_host_is_likely_where_its_kernel_shows_it_too() -> None:
    callers = found_in(ALL)
    taken = TakenCores("h1", 40.0, 0.5, "nodes/h1/node.json")
    for busy, confidence in (({"h1": taken}, Confidence.LIKELY), ({"h0": replace(taken, host="h0")}, Confidence.SUSPECT)):
        (found,) = findings_of_callers(callers, BusyHosts(busy))
        assert (found.ranks, found.cause, found.confidence) == (SLOW, Cause.CPU_CONTENTION, confidence)


def test_a_guest_on_all_gpus_of_a_host_makes_no_call_slow(tmp_path: Path) -> None:
    """Steps are as much longer, and all of its ranks work longer; their threads do not."""
    guest = parse("background-compute@node1:50%+lasting")
    with case_of(simulate(JOB, [guest], 3, iterations=14), tmp_path, timing=True) as connection:
        supply = supply_of(connection)
        assert len(supply.get(StepTimes).long()) == 3 and supply.get(SlowCallers) == ()


def test_the_host_is_named_beside_whatever_else_held_up_steps() -> None:
    callers = found_in(ALL)
    found, _ = run(supply_of(recorded("step-delayed"), instead={SlowCallers: callers}), [step_delayed.RULE], {})
    (each,) = [each for each in found if each.cause is Cause.CPU_CONTENTION]
    assert (each.ranks, each.confidence) == (SLOW, Confidence.SUSPECT)
