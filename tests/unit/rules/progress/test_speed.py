"""Whether the speed of a job was looked at, and what it was against the job's own past."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forensics.case.build import open_case
from forensics.rules.engine import supply_of
from forensics.rules.reductions.progress.speed import Pace, Speed, _Series, judged
from forensics.rules.reductions.progress.varied import Floats, most_factor
from tests.recordings.collection import loose
from tests.recordings.job import GRADIENTS, MILLISECOND, Job
from tests.unit.frontier.recorded import synchronous, write

OTHER = ((8,),)
STAGES = ("data", "forward", "backward", "callbacks", "optimizer")


def of_job(folder: Path, length_ms: Callable[[int], float], steps: int = 40, ranks: Sequence[int] = range(4)) -> Speed:
    """A job that reduces four layers and a loss in each step; the host needs `length_ms` before them."""
    job = Job(4, "nccl", pace_ns=MILLISECOND)
    for step in range(steps):
        job.pause(int(length_ms(step) * MILLISECOND))
        for _ in range(4):
            job.call(job.everyone, shapes=GRADIENTS)
        job.call(job.everyone, shapes=OTHER)
    with open_case([loose(job, folder, ranks)]) as connection:
        return supply_of(connection).get(Speed)


def of_lengths(lengths: Floats) -> Speed:
    """Steps that the program marked, one after the other."""
    return judged([_Series("recorded steps", lengths, np.cumsum(lengths).astype(np.int64).tolist(), None, whole=True)])


def test_a_job_that_became_three_times_slower(tmp_path: Path) -> None:
    found = of_job(tmp_path, lambda step: 100 if step < 20 else 330)
    assert found.pace is Pace.SLOWER and found.since_ns is not None
    assert found.factor == pytest.approx(3.1, abs=0.2)
    assert found.steps == 37


def test_a_job_that_is_as_fast_as_it_was(tmp_path: Path) -> None:
    found = of_job(tmp_path, lambda step: 100 + step % 5)
    assert (found.pace, found.was_measured) == (Pace.STEADY, True)


@pytest.mark.parametrize(("longer", "pace"), [(1.05, Pace.STEADY), (1.22, Pace.NOT_MEASURED), (1.4, Pace.SLOWER)])
def test_steps_that_are_longer_in_the_end_are_not_as_long_as_at_first(longer: float, pace: Pace) -> None:
    """Every fourth step evaluates, which is a spread of a quarter."""
    lengths = np.array([1640.0 if step % 4 == 3 else 1320.0 for step in range(16)])
    assert of_lengths(np.where(np.arange(16) < 12, lengths, longer * lengths) * 1e6).pace is pace


@pytest.mark.parametrize(
    ("last", "pace"),
    [
        ((1.04, 1.09), Pace.NOT_MEASURED), ((1.03, 1.04, 1.12), Pace.NOT_MEASURED), ((1.0, 1.2), Pace.STEADY),
        ((1.2, 1.0), Pace.STEADY), ((1.001, 1.001), Pace.STEADY),
    ],
    ids=["two", "three", "the last one", "the one before", "by next to nothing"],
)  # fmt: skip
def test_what_began_in_the_last_two_steps_may_last(last: Sequence[float], pace: Pace) -> None:
    lengths = np.concatenate([2030.0 + np.array([0, 16, 12, 5, -4, 9] * 4)[: 24 - len(last)], 2046.0 * np.array(last)])
    assert of_lengths(lengths * 1e6).pace is pace


def test_calls_that_were_dated_alike_at_first(tmp_path: Path) -> None:
    """A clock that stands still makes steps of no length: nothing can be so much slower than they are."""
    job = Job(4, "nccl", pace_ns=0)
    for step in range(40):
        if step >= 20:
            job.pause(100 * MILLISECOND)
        job.call(job.everyone)
        if step < 20:
            job.calls = {rank: [replace(c, time_ns=1, done_ns=1) for c in calls] for rank, calls in job.calls.items()}
    with open_case([loose(job, tmp_path)]) as connection:
        assert supply_of(connection).get(Speed).pace is not Pace.STEADY


def test_a_job_that_becomes_slower_little_by_little(tmp_path: Path) -> None:
    found = of_job(tmp_path, lambda step: 100 + 4 * step)
    assert found.pace is Pace.SLOWER


@pytest.mark.parametrize(
    ("lengths_ms", "pace"),
    [
        ((550, 1050, 150, 110, 115, 139, 126, 120, 546, 924), Pace.NOT_MEASURED),
        ((550, 1050, 150, 110, 115, 139, 126, 120, 115, 125), Pace.STEADY),
        ((100, 120, 140, 160, 180, 200, 220, 240, 260, 280, 300, 320, 340), Pace.SLOWER),
    ],
    ids=["saves at its end", "saves at its begin", "little by little"],
)
def test_two_long_steps_at_the_end_of_a_short_record_are_no_slow_job(lengths_ms: Sequence[float], pace: Pace) -> None:
    lengths = np.array(lengths_ms) * MILLISECOND
    found = of_lengths(lengths)
    assert found.pace is pace


@pytest.mark.parametrize("period", [5, 10])
def test_a_long_step_now_and_then_is_no_lasting_change(tmp_path: Path, period: int) -> None:
    """Evaluation and checkpoints, also one as the last thing in the record."""
    assert of_job(tmp_path, lambda step: 100 if step % period else 1000).pace is Pace.STEADY


def saving(length_ms: Callable[[int], float], save_ms: Callable[[int], float]) -> Floats:
    """Sixty steps, each fourth one with a save."""
    return MILLISECOND * np.array([length_ms(step) + (save_ms(step) if step % 4 == 2 else 0) for step in range(60)])


@pytest.mark.parametrize(
    ("length_ms", "save_ms", "pace"),
    [
        (lambda step: 400 + step % 5, lambda step: 2000 + 3000 * (step // 20 % 2), Pace.STEADY),
        (lambda step: 400 + step % 5, lambda step: 1000 + 100 * step, Pace.NOT_MEASURED),
        (lambda step: 400 if step < 30 else 600, lambda _: 2000, Pace.SLOWER),
        (lambda step: 400 + step % 5, lambda step: 2000 * (step > 28), Pace.NOT_MEASURED),
    ],
    ids=["saves of any length", "saves that become longer", "steps that become longer", "pauses since the middle"],
)
def test_saves_that_recur_evenly_hide_no_speed(
    length_ms: Callable[[int], float], save_ms: Callable[[int], float], pace: Pace
) -> None:
    lengths = saving(length_ms, save_ms)
    ends = np.cumsum(lengths).astype(np.int64).tolist()
    assert judged([_Series("calls", lengths, ends, None, of_program=True)]).pace is pace


@pytest.mark.parametrize(("slower_from", "pace"), [(999, Pace.STEADY), (30, Pace.SLOWER)])
def test_a_call_that_recurs_in_bursts(slower_from: int, pace: Pace, tmp_path: Path) -> None:
    """One kind of call, five times in a step at uneven distances: five of its times make a step of which the record has all."""
    job = Job(4, "nccl", pace_ns=MILLISECOND)
    for step in range(60):
        job.pause((300 if step >= slower_from else 100) * MILLISECOND)
        for layer in range(5):
            job.pause(layer * 5 * MILLISECOND)
            job.call(job.everyone)
    with open_case([loose(job, tmp_path)]) as connection:
        found = supply_of(connection).get(Speed)
    assert found.pace is pace
    assert found.steps == pytest.approx(58, abs=1)


@pytest.mark.slow
def test_calls_of_a_burst_are_alike_and_tell_no_speed(tmp_path: Path) -> None:
    """Bursts of uneven size: the time of a step passes between them, and nothing shows how many calls one has."""
    sizes = np.random.default_rng(2).integers(8, 40, 12)
    ends = set(np.cumsum(sizes).tolist())
    found = of_job(tmp_path, lambda step: 900 if step in ends else 1, steps=int(sizes.sum()))
    assert found.pace is Pace.NOT_MEASURED


def test_recorded_steps_are_steps_however_long_the_job_saves_between_them(tmp_path: Path) -> None:
    """Most of the time goes into every tenth step, which calls alone would not tell from what lies between two bursts."""
    does = np.tile(np.array([5.0, 60, 100, 4, 20])[None, :, None], (40, 1, 4))
    does[::10, 3] = 9000
    with open_case([write(tmp_path / "stages", synchronous(STAGES, does))]) as connection:
        found = supply_of(connection).get(Speed)
    assert (found.pace, found.lost_ns) == (Pace.STEADY, 0.0)


def test_lengths_without_a_rhythm_are_no_measure(tmp_path: Path) -> None:
    """Nor do sums of many of them: that these are alike is chance."""
    noise = np.random.default_rng(1).uniform(20, 400, 40)
    assert of_job(tmp_path, lambda step: float(noise[step])).pace is Pace.NOT_MEASURED


@pytest.mark.parametrize(("slower", "pace"), [(1.0, Pace.STEADY), (1.25, Pace.NOT_MEASURED)])
def test_many_steps_that_differ_by_themselves_tell_a_speed(slower: float, pace: Pace, tmp_path: Path) -> None:
    """Sequences of any length; a quarter more in the end may be a third."""
    chance = np.random.default_rng(3)
    lengths = np.concatenate([chance.permutation(np.linspace(120, 300, 30)) for _ in range(4)])
    lengths[80:] *= slower
    assert of_job(tmp_path, lambda step: float(lengths[step]), steps=120).pace is pace


def drawn(steps: int, runs: int = 1, factor: float = 1.0, seed: int = 0) -> Floats:
    """Lengths (ns) of which half are within 150 to 260 ms, each as often in a row as runs are long."""
    chance = np.random.default_rng(seed)
    return np.repeat(np.exp(chance.normal(np.log(2e8 * factor), 0.41, -(-steps // runs))), runs)[:steps]


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_in_most_records_the_middle_changed_by_less_than_is_said(factor: float) -> None:
    """Of equal chance records, one in twenty to forty may be stated wrongly."""
    stated = [most_factor(drawn(50, seed=seed), drawn(50, factor=factor, seed=seed + 1000)) for seed in range(200)]
    assert np.mean(np.array(stated) >= factor) >= 0.93


def test_steps_that_are_alike_in_runs_and_few_ones_tell_less() -> None:
    many = most_factor(drawn(200), drawn(200, seed=1))
    assert many < most_factor(drawn(20), drawn(20, seed=1))
    assert many < most_factor(drawn(200, runs=20), drawn(200, runs=20, seed=1))
    assert most_factor(drawn(4), drawn(200)) == float("inf")


def test_too_few_steps_are_no_measure(tmp_path: Path) -> None:
    found = of_job(tmp_path, lambda _: 100, steps=2)
    assert (found.pace, found.by) == (Pace.NOT_MEASURED, None)


def test_the_record_of_one_rank_is_enough(tmp_path: Path) -> None:
    assert of_job(tmp_path, lambda step: 100 if step < 20 else 330, ranks=(3,)).pace is Pace.SLOWER


def test_recorded_steps_come_first(tmp_path: Path) -> None:
    does = np.tile(np.array([5.0, 60, 100, 4, 20])[None, :, None], (60, 1, 4))
    does[30:] *= 2
    with open_case([write(tmp_path / "stages", synchronous(STAGES, does))]) as connection:
        found = supply_of(connection).get(Speed)
    assert (found.pace, found.by) == (Pace.SLOWER, "recorded steps")
    assert found.factor == pytest.approx(2.0, abs=0.1)
