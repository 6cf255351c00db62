"""Steps that differ: batches that grow (`--rampup-batch-size`), rests at the ends of epochs, lengths of sequences."""

from __future__ import annotations

import io
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forensics.fixtures.simulator import bundle, losses, ramp
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import LONGEST
from forensics.fixtures.simulator.program import program
from forensics.fixtures.simulator.simulation import simulate
from forensics.fixtures.simulator.writers.flight_recorder import flight_recorder
from forensics.fixtures.simulator.writers.launch import command_line, printed, stated
from forensics.model import Outcome
from tests.recordings.verdicts import verdict_of
from tests.unit.simulator.small_jobs import DENSE, quiet, run_with

GROWING = replace(DENSE, microbatches=6, ramp_from=3, ramp_by=1, ramp_every=6, first_step=0)


def test_a_batch_is_larger_each_time_that_its_share_of_the_samples_is_done() -> None:
    # 3 + 3 done: 4; 4 done, 2 over the second share with the next 4: 14 of 12 and 18: 5; 5 more are 19 of 18: whole.
    assert [ramp.microbatches(GROWING, iteration) for iteration in range(7)] == [3, 3, 4, 4, 5, 6, 6]
    assert ramp.steps(GROWING) == 5
    assert ramp.samples(GROWING) == 3 * 6 * 4


def test_iterations_of_a_run_have_different_numbers_of_microbatches() -> None:
    run = run_with(GROWING, iterations=6)
    received = [sum(op.kind == "recv" for op in recording.ops) for recording in run.recordings if recording.stage == 1]
    assert received == [3, 3, 4, 4, 5, 6]
    assert np.isfinite(run.ends).all()


def test_the_run_of_such_a_job_lies_where_its_batch_grows() -> None:
    for seed in range(6):
        made = simulate(GROWING, [parse("none")], seed, iterations=4)
        first, last = (len(program(made.job, 0, iteration)) for iteration in (0, 40))
        assert made.first_step < ramp.steps(GROWING) and first < last


def test_megatrons_arguments_say_how_the_batch_grows() -> None:
    made = simulate(GROWING, [parse("none")], 5, iterations=4)
    usual = bundle.options_of(made, style="megatron")
    options = next(one for seed in range(99) if stated(one := replace(usual, seed=seed)) == "right")
    assert "--rampup-batch-size 12 4 72" in " ".join(command_line(GROWING, options))
    assert any(line.endswith("['12', '4', '72']") for line in printed(GROWING, 0, options) if "rampup_batch_size" in line)
    assert "--rampup-batch-size" not in command_line(DENSE, options)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ramp_from": 5, "ramp_by": 3}, "a batch grows"),
        ({"ramp_from": 9}, "a batch grows"),
        ({"ramp_from": 2, "ramp_every": 0}, "a batch grows"),
        ({"ramp_from": 2, "ramp_by": 1, "schedule": "interleaved", "chunks": 2}, "multiples of the pipeline size"),
    ],
)  # fmt: skip
def test_a_batch_that_cannot_grow_so_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(DENSE, microbatches=6, **changes)


def test_the_last_step_of_an_epoch_has_a_rest() -> None:
    job = replace(DENSE, microbatches=6, epoch_steps=3, epoch_rest=2, first_step=7)
    assert [ramp.microbatches(job, iteration) for iteration in range(6)] == [6, 2, 6, 6, 2, 6]
    run = run_with(job, iterations=3)
    assert [sum(op.kind == "recv" for op in each.ops) for each in run.recordings if each.stage == 1] == [6, 2, 6]


def test_messages_and_kernels_are_as_long_as_their_sequences() -> None:
    job = replace(quiet(DENSE), microbatches=6, shortest=4, seed=3)
    run, usual = run_with(job, iterations=2), run_with(replace(job, shortest=LONGEST), iterations=2)
    for found, whole in zip(run.recordings, usual.recordings, strict=True):
        drawn = ramp.lengths(job, found.iteration)
        for number, (op, longest) in enumerate(zip(found.ops, whole.ops, strict=True)):
            share = 1.0 if op.microbatch is None or op.stream == "dp" else drawn[op.microbatch] / LONGEST
            assert (op.kind, op.bytes, op.rows) == (
                longest.kind,
                longest.bytes * share,
                longest.rows * (share if op.bytes else op.rows / longest.rows),
            )
            if op.name == "mlp":
                took, usually = ((each.ended - each.began)[number] for each in (found, whole))
                assert took == pytest.approx(share * usually)
    assert len(set(ramp.lengths(job, 0))) > 1 and ramp.lengths(job, 0) != ramp.lengths(job, 1)


def test_recorders_have_the_lengths_of_messages_at_both_ends() -> None:
    made = simulate(replace(DENSE, shortest=8), [parse("none")], 3, iterations=3)
    sizes: dict[int, list[list[list[int]]]] = {}
    for rank, (_, dump) in enumerate(flight_recorder(made.run, made.places, made.capture_ns, bundle.options_of(made))):
        entries = pickle.load(io.BytesIO(dump))["entries"]  # noqa: S301
        sizes[rank] = [
            each["input_sizes"] for each in entries if each["profiling_name"] in ("nccl:send 0->1", "nccl:recv 1<-0")
        ]
    width = DENSE.parallel.width
    count = min(len(sizes[0]), len(sizes[width]))
    assert count > 8 and sizes[0][:count] == sizes[width][:count]
    assert len({shape[0][0] for shape in sizes[0]}) > 2 and len({shape[0][-1] for shape in sizes[0]}) == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epoch_steps": 4, "epoch_rest": 9}, "last step of an epoch"),
        ({"epoch_steps": 4, "epoch_rest": 1, "schedule": "interleaved", "chunks": 2}, "multiples of the pipeline size"),
        ({"shortest": 0}, "shortest sequences"),
        ({"shortest": 17}, "shortest sequences"),
    ],
)  # fmt: skip
def test_epochs_and_lengths_that_cannot_be_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(DENSE, microbatches=6, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"epoch_steps": 4, "epoch_rest": 1}, {"shortest": 4}])
def test_nobody_is_accused_where_steps_differ(changes: dict[str, Any], tmp_path: Path) -> None:
    made = simulate(replace(DENSE, microbatches=6, **changes), [parse("none")], 3, iterations=12)
    whole = losses.drawn(made.job.parallel.world, made.random("losses"))
    bundle.write(made, bundle.options_of(made, timing=True), whole, tmp_path / "bundle.tar")
    verdict = verdict_of(tmp_path / "bundle.tar")
    assert verdict.outcome is not Outcome.HANG and not verdict.suspects


@pytest.mark.slow
def test_nobody_is_accused_while_a_batch_grows(tmp_path: Path) -> None:
    made = simulate(GROWING, [parse("none")], 3, iterations=8)
    whole = losses.drawn(made.job.parallel.world, made.random("losses"))
    bundle.write(made, bundle.options_of(made, timing=True), whole, tmp_path / "bundle.tar")
    verdict = verdict_of(tmp_path / "bundle.tar")
    assert verdict.outcome is not Outcome.HANG and not verdict.suspects
