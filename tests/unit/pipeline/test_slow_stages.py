"""Stages of a pipeline of single ranks: slow since a step, by turns, from the first step on, and what accuses nobody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import MS, Parallelism
from forensics.fixtures.simulator.simulation import simulate
from forensics.model import Confidence, Outcome, Suspect
from forensics.rules.diagnosis import diagnose
from forensics.rules.reductions.pipeline.slow_stages import SlowStages, slow_stages
from forensics.rules.reductions.pipeline.stage_work import StageWork
from tests.recordings.verdicts import verdict_of
from tests.unit.pipeline.simulated import case_of
from tests.unit.simulator.small_jobs import DENSE

JOB = replace(DENSE, parallel=Parallelism(pipeline=4), model=replace(DENSE.model, forward_ns=60 * MS), microbatches=8)
STAGES, STEPS, PASSES = 6, 40, 8


def suspects(
    fault: str, folder: Path, *, timing: bool, onset: int, iterations: int = 30, after_s: float | None = None
) -> tuple[Suspect, ...]:
    made = simulate(JOB, [parse(fault)], 3, iterations=iterations, onset=onset, after_s=after_s)
    with case_of(made, folder, timing=timing) as connection:
        return diagnose(connection).suspects


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_a_stage_that_became_slow_is_named_with_its_steps(rank: int, tmp_path: Path) -> None:
    """The first and the last one, too: its own past shows what is usual, embedding and head included."""
    (suspect,) = suspects(f"gpu-throttled@rank{rank}:250+lasting", tmp_path, timing=True, onset=20, after_s=12.0)
    assert (suspect.ranks, suspect.stage.pipeline_stage, suspect.confidence) == ((rank,), rank, Confidence.LIKELY)
    assert "FX179" in suspect.rules and " steps (20-" in suspect.evidence[0].statement


@pytest.mark.slow
def test_without_times_inside_calls_nobody_else_is_named(tmp_path: Path) -> None:
    found = suspects("gpu-throttled@rank1:200+lasting", tmp_path, timing=False, onset=20, iterations=40, after_s=40.0)
    assert [(each.ranks, each.confidence) for each in found] == [((1,), Confidence.SUSPECT)]


@pytest.mark.parametrize(("rank", "expected"), [(2, [(2,)]), (3, []), (0, [])], ids=["middle", "last", "first"])
def test_from_the_first_step_on_a_stage_between_others_is_suspected(
    rank: int, expected: list[tuple[int, ...]], tmp_path: Path
) -> None:
    """The last stage may have a long head, and the first an embedding."""
    found = suspects(f"gpu-throttled@rank{rank}:250+before", tmp_path, timing=True, onset=0, iterations=12, after_s=30.0)
    assert [each.ranks for each in found] == expected
    assert all(each.confidence is Confidence.SUSPECT for each in found)


@pytest.mark.parametrize(("slow", "expected"), [(2, [(1,), (2,)]), (1, [(1,)])], ids=["another rank", "the same rank"])
def test_who_was_slow_before_the_job_stopped_is_a_second_fault(
    slow: int, expected: list[tuple[int, ...]], tmp_path: Path
) -> None:
    faults = [parse("host-hang@rank1/forward"), parse(f"gpu-throttled@rank{slow}:250+before")]
    made = simulate(JOB, faults, 3, iterations=12, onset=8, after_s=40.0)
    options = bundle.options_of(made, timing=True)
    bundle.write(made, options, losses.drawn(4, made.random("losses")), tmp_path / "bundle.tar")
    found = verdict_of(tmp_path / "bundle.tar")
    assert found.outcome is Outcome.HANG
    assert [each.ranks for each in found.suspects] == expected
    assert all(each.evidence[0].statement.startswith("before the job stopped rank 2") for each in found.suspects[1:])


@pytest.mark.parametrize(
    ("fault", "timing", "rank"),
    [
        ("frontier-callback@rank3:700+late", True, 3),
        pytest.param("frontier-data@rank1:500+late", True, 1, marks=pytest.mark.slow),
        pytest.param("frontier-optimizer@rank1:600+early", False, 1, marks=pytest.mark.slow),
    ],
    ids=["last stage, behind a step", "between others, before a step", "by ends"],
)
def test_a_rank_that_comes_late_to_steps_makes_no_neighbour_slow(fault: str, timing: bool, rank: int, tmp_path: Path) -> None:
    """What is sent to it waits, and so does what is sent after: that of no stage takes longer."""
    found = suspects(fault, tmp_path, timing=timing, onset=9, iterations=36)
    assert {rank for each in found for rank in each.ranks} <= {rank}
    assert not any("FX179" in each.rules for each in found)


@pytest.mark.slow
@pytest.mark.parametrize("timing", [True, False])
def test_of_a_sound_pipeline_nobody_is_named(timing: bool, tmp_path: Path) -> None:
    assert suspects("none", tmp_path, timing=timing, onset=1) == ()


def work(longer: dict[int, slice], factor: float = 1.6, *, by_ends: bool = False, followed: bool = True) -> StageWork:
    """Stages that work 40 and 80 ms on a microbatch; some of them take `factor` times as long in some steps."""
    chance = np.random.default_rng(5)
    forward, backward = (np.full((STAGES, STEPS), ns) * chance.normal(1.0, 0.01, (STAGES, STEPS)) for ns in (40e6, 80e6))
    length = np.full(STEPS, (PASSES + STAGES - 1) * 120e6) * chance.normal(1.0, 0.005, STEPS)
    late = np.zeros(STEPS, np.bool_)
    for stage, steps in longer.items():
        late[steps] = True
        for part in (forward, backward):
            part[stage, steps] *= factor
    length[late] += followed * PASSES * (factor - 1) * 120e6
    if by_ends:  # a watchdog looks every 100 ms
        forward, backward = (100e6 * np.floor(part / 100e6 + chance.random(part.shape)) for part in (forward, backward))
    return StageWork(tuple(range(STAGES)), np.arange(STEPS), length, forward, backward, PASSES, by_ends)


def found_in(made: StageWork) -> SlowStages:
    return slow_stages(made)


def test_who_is_slow_by_turns_is_named_with_the_steps_of_each() -> None:
    found = found_in(work({1: slice(15, 24), 4: slice(24, 40)})).found
    assert {each.rank: each.numbers for each in found} == {1: tuple(range(15, 24)), 4: tuple(range(24, 40))}


def test_a_stage_that_is_slow_now_and_then_is_named_with_these_steps() -> None:
    (found,) = found_in(work({2: slice(4, 40, 6)})).found
    assert (found.rank, found.numbers) == (2, tuple(range(4, 40, 6)))


def test_where_all_stages_take_longer_it_is_the_data() -> None:
    assert found_in(work({stage: slice(20, 40) for stage in range(STAGES)})).found == ()


def test_where_half_of_the_stages_take_longer_nobody_is_distinguished_from_the_job() -> None:
    assert found_in(work({stage: slice(20, 40) for stage in range(3)})).found == ()


def test_a_stage_that_takes_longer_where_steps_do_not_is_absorbed() -> None:
    assert found_in(work({2: slice(20, 40)}, factor=1.2, followed=False)).found == ()


def test_steps_that_are_longer_by_more_than_the_stage_are_not_its_doing() -> None:
    made = work({2: slice(20, 40)}, factor=1.1)
    made.length[20:] += 2e9
    assert found_in(made).found == ()


@pytest.mark.parametrize(("factor", "expected"), [(1.9, [3]), (1.4, [])])
def test_a_stage_with_one_layer_more_is_not_named_from_the_start(factor: float, expected: list[int]) -> None:
    found = found_in(work({3: slice(0, STEPS)}, factor)).found
    assert [each.rank for each in found] == expected
    assert all(each.by_peers for each in found)


def test_by_ends_a_backward_that_waits_for_the_stage_before_it_is_not_its_own() -> None:
    """The first stage is slow, which ends do not tell of it: the one behind it sends its last backward late."""
    made = work({0: slice(20, 40)}, by_ends=True)
    made.backward[1, 20:] += 100e6
    made.forward[0], made.backward[0] = np.nan, np.nan
    assert found_in(made).found == ()


def test_by_ends_the_slow_stage_is_distinguished_from_the_one_that_waits_for_it() -> None:
    made = work({2: slice(20, 40)}, factor=2.5, by_ends=True)
    made.backward[3, 20:] += 100e6
    assert [each.rank for each in found_in(made).found] == [2]
