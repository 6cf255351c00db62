"""Ranks that are late one after the other are named each with its own steps, and nobody between them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.losses import Losses
from forensics.fixtures.simulator.presets import PRESETS
from forensics.fixtures.simulator.simulation import makespans, simulate
from forensics.fixtures.simulator.truth import truth
from forensics.model import Anomaly, Outcome
from forensics.rules.diagnosis import diagnose
from forensics.rules.reductions.frontier.culprits import Attribution, attribute
from forensics.rules.reductions.frontier.cut import Cut
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.matrix import Column
from tests.unit.frontier.jobs import MS, matrix
from tests.unit.pipeline.simulated import case_of

STAGES_MS = {"data": 2.0, "forward": 60.0, "backward": 120.0, "optimizer": 6.0}
Late = dict[int, tuple[range, float]]
"""Steps in which a rank is late, and by how many ms."""


def found(late: Late, *, seed: int = 0, steps: int = 60, ranks: int = 8, jitter: float = 0.01, stage: int = 0) -> Attribution:
    chance = np.random.default_rng(seed)
    usual = np.array([*STAGES_MS.values()]) * MS
    work = usual[None, :, None] * (1 + chance.exponential(jitter, (steps, len(usual), ranks)))
    for rank, (own, by) in late.items():
        work[list(own), stage, rank] += by * MS
    columns, lengths = tuple(Column(name) for name in STAGES_MS), work.sum(axis=1).max(axis=1)
    window = Cut(
        "backward", "collectives", "collectives", columns, (slice(0, 4),), work, np.arange(steps), lengths,
        tuple(range(ranks)), True,
    )  # fmt: skip
    return attribute(matrix(work / MS, columns=columns), window, Gates())


def turns(late: Late, *, seed: int = 0, steps: int = 60, ranks: int = 8, jitter: float = 0.01) -> dict[tuple[int, ...], object]:
    made = found(late, seed=seed, steps=steps, ranks=ranks, jitter=jitter)
    return {culprit.ranks: culprit.turn for culprit in made.culprits}


@pytest.mark.parametrize("ranks", [4, 8, 32])
def test_each_of_two_ranks_that_are_late_in_turn_has_its_own_steps(ranks: int) -> None:
    late = {3: (range(10, 30), 100.0), 1: (range(40, 60), 100.0)}
    assert turns(late, ranks=ranks) == {(3,): (10, 29), (1,): (40, 59)}


def test_three_ranks_one_after_the_other() -> None:
    late = {rank: (range(20 * rank, 20 * rank + 15), 100.0) for rank in (1, 2, 4)}
    assert turns(late, steps=100) == {(rank,): (20 * rank, 20 * rank + 14) for rank in (1, 2, 4)}


def test_who_is_late_for_a_while_has_its_steps_and_who_always_is_has_none() -> None:
    assert turns({3: (range(12, 30), 100.0)}) == {(3,): (12, 29)}
    assert turns({3: (range(60), 100.0)}) == {(3,): None}
    assert turns({3: (range(0, 60, 4), 100.0)}) == {(3,): None}


def test_who_is_late_in_most_steps_hides_nobody_who_is_late_before() -> None:
    late = {3: (range(5, 15), 100.0), 1: (range(20, 60), 100.0)}
    assert turns(late) == {(3,): (5, 14), (1,): (20, 59)}


def test_one_that_costs_little_in_its_turn_is_not_named_beside_the_other_one() -> None:
    assert set(turns({3: (range(10, 30), 100.0), 1: (range(40, 60), 8.0)})) == {(3,)}


def test_few_steps_are_no_turn() -> None:
    assert set(turns({3: (range(10, 30), 100.0), 1: (range(40, 44), 100.0)})) == {(3,)}


def test_ranks_that_change_from_step_to_step_are_nobody() -> None:
    late: Late = {rank: (range(rank, 60, 4), 100.0) for rank in range(4)}
    (culprit,) = found(late).culprits
    assert (culprit.stage, culprit.ranks, culprit.changing, culprit.turn) == ("data", (), True, None)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_one_drawn_for_each_step_is_hardly_anybody(ranks: int) -> None:
    def named(seed: int) -> bool:
        whom = np.random.default_rng(seed).integers(ranks, size=300)
        late: Late = {rank: (range(0), 0.0) for rank in range(ranks)}
        late |= {rank: (np.flatnonzero(whom == rank).tolist(), 100.0) for rank in range(ranks)}  # type: ignore[misc]
        return any(culprit.ranks for culprit in found(late, steps=300, ranks=ranks).culprits)

    assert sum(named(seed) for seed in range(40)) <= 1


@pytest.mark.parametrize("ranks", [2, 8])
def test_jitter_of_a_long_sound_record_is_nobody(ranks: int) -> None:
    assert not [seed for seed in range(20) if any(turns({}, seed=seed, steps=400, ranks=ranks, jitter=0.1))]


def test_faults_of_a_run_take_their_turns() -> None:
    faults = [parse("frontier-data@rank3:120ms+early"), parse("frontier-data@rank6:120ms+late")]
    made = simulate(PRESETS["ddp-8"], faults, 7, after_s=24)
    first, second = truth(made, Losses())["faults"]
    spans, usual = makespans(made.run), makespans(made.reference)
    longer = [made.first_step + int(row) + 1 for row in np.flatnonzero(spans[: len(usual)] > 1.2 * usual)]
    assert [first["ranks"], second["ranks"]] == [[3], [6]] and first["end_ns"] < second["onset_ns"]
    # A batch is late before the step that it holds up.
    assert longer[0] - 1 <= first["step"] <= longer[0]
    assert second["step"] + 1 in longer and second["step"] - 1 not in longer


def test_what_does_not_last_takes_no_turns() -> None:
    with pytest.raises(Exception, match="no course"):
        parse("compute-delay@rank3:120ms+early")
    assert replace(parse("gpu-throttled@rank3+late")).course == "late"


@pytest.mark.parametrize(("delay_ms", "named"), [(120, [(6,), (3,)]), (20, [(6,)])], ids=["much", "little"])
def test_who_was_slow_before_a_job_stopped_is_said_beside_who_stopped_it(
    delay_ms: int, named: list[tuple[int, ...]], tmp_path: Path
) -> None:
    faults = [parse(f"frontier-data@rank3:{delay_ms}ms+before"), parse("host-hang@rank6")]
    made = simulate(PRESETS["ddp-8"], faults, 9, after_s=20)
    with case_of(made, tmp_path, sources=("recorder", "stacks", "processes", "stages")) as connection:
        found = diagnose(connection)
    assert found.outcome is Outcome.HANG and [suspect.ranks for suspect in found.suspects] == named
    assert [suspect.ranks for suspect in found.suspects if suspect.anomaly is Anomaly.FAIL_SLOW] == named[1:]
