"""Microbatches, chunks and schedule of a step: by the messages of a pipeline, held against the configuration."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forensics.rules.reductions.pipeline.iteration import Iteration
from forensics.rules.reductions.pipeline.schedules import Schedule
from forensics.rules.reductions.pipeline.step_shape import shape_of
from tests.recordings.commands import Command
from tests.recordings.scenarios import SCENARIOS
from tests.unit.pipeline.made_up_iterations import made_iteration

SIZES = "tensor_model_parallel_size: 2\npipeline_model_parallel_size: 2\nmicro_batch_size: 1\n"


@pytest.mark.parametrize(
    ("schedule", "microbatches", "fits"),
    [
        (Schedule.GPIPE, 6, {Schedule.GPIPE}),
        (Schedule.ONE_F_ONE_B, 6, {Schedule.ONE_F_ONE_B, Schedule.ZERO_BUBBLE}),
        (Schedule.ONE_F_ONE_B, 1, {Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.ZERO_BUBBLE}),
    ],
)
def test_all_schedules_that_order_the_passes_so_are_stated(schedule: Schedule, microbatches: int, fits: set[Schedule]) -> None:
    """One microbatch has no order; gradients of weights send nothing, and are not seen apart."""
    found = shape_of(made_iteration(schedule, 4, microbatches))
    assert (found[0], found[1], set(found[2])) == (microbatches, 1, fits)


def test_an_order_of_its_own_is_no_known_schedule() -> None:
    made = made_iteration(Schedule.ONE_F_ONE_B, 4, 6)
    assert shape_of(_turned(made))[2] == ()


def _turned(made: Iteration) -> Iteration:
    """The iteration whose first stage works on its passes the other way round."""
    first = made.works[0]
    return replace(made, works=(replace(first, passes=first.passes[::-1]), *made.works[1:]))


def layout(forensics: Command, config: Path, text: str, bundle: Path) -> tuple[Any, list[str]]:
    config.write_text(text)
    found = json.loads(forensics("diagnose", bundle, "--config", config, "--format", "json").out)
    return found["layout"]["step"], [each["reason"] for each in found["labels"] if each["axis"] == "layout"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("global_batch_size: 8\npipeline_parallel_schedule: 1F1B\n", []),
        ("pipeline_parallel_schedule: LoopedBFS\n", []),
        ("global_batch_size: 16\n", ["makes 8 microbatches of a step, its messages show 4"]),
        ("virtual_pipeline_model_parallel_size: 2\n", ["pipeline.chunks is 2, but messages show 1 on a stage"]),
        ("pipeline_parallel_schedule: GPipe\n", ["is gpipe, but passes are in the order of 1f1b or zb-h1"]),
    ],
    ids=["right", "a schedule that is not known", "microbatches", "chunks", "schedule"],
)
def test_what_a_step_shows_counts_and_belies_the_configuration(
    forensics: Command, tmp_path: Path, more: str, said: list[str]
) -> None:
    bundle = SCENARIOS / "step-delayed" / "bundle.tar.zst"
    step, labels = layout(forensics, tmp_path / "train.yaml", SIZES + more, bundle)
    assert (step["microbatches"], step["chunks"], step["schedules"]) == (4, 1, ["1f1b", "zb-h1"])
    assert (step["method"], step["confidence"]) == ("calls", "inferred")
    assert len(labels) == len(said) and all(part in label for part, label in zip(said, labels, strict=True))


def test_where_no_whole_step_is_recorded_the_configuration_is_all_there_is(forensics: Command, tmp_path: Path) -> None:
    """gloo records no messages: nothing belies what somebody configured, and it is assumed."""
    bundle = SCENARIOS / "microbatch-left-out" / "bundle.tar.zst"
    text = "pipeline_model_parallel_size: 4\nmicro_batch_size: 1\nglobal_batch_size: 6\npipeline_parallel_schedule: GPipe\n"
    step, labels = layout(forensics, tmp_path / "train.yaml", text, bundle)
    expected = {"microbatches": 6, "chunks": None, "schedules": ["gpipe"], "method": "configured", "confidence": "assumed"}
    assert step == expected and labels == []
