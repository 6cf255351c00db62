"""Stages that a trace does not name: read off the gradients, the wrapper's marks, and names that people give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forensics.ingest._shared.device_work import Intervals
from forensics.ingest._shared.stage_names import stage_names, stage_of
from forensics.ingest._shared.trace_steps import Mark, Marks, batches
from forensics.ingest.interface import Batch

MS = 1_000_000
MAIN, GLOO = "1/1", "1/2"


def marks(
    *annotated: tuple[str, float, float], gradients: list[tuple[float, float]], waits: list[tuple[float, float]]
) -> Marks:
    """Two steps of 100 ms that are alike; times in ms after the begin of a step, the collectives on a thread of their own."""
    found = Marks()
    begins, ends = [], []
    for step in range(2):
        at = 1000 * MS + step * 100 * MS

        def mark(name: str, begin: float, end: float, thread: str, at: int = at) -> Mark:
            return Mark(at + round(begin * MS), at + round(end * MS), name, thread)

        found.annotations += [mark(f"ProfilerStep#{step}", 0, 100, MAIN), *(mark(*each, MAIN) for each in annotated)]
        found.collectives += [mark("gloo:all_reduce", *wait, GLOO) for wait in waits]
        begins += [at + round(begin * MS) for begin, _ in gradients]
        ends += [at + round(end * MS) for _, end in gradients]
    found.gradients = Intervals.of(np.array(begins, dtype=np.int64), np.array(ends, dtype=np.int64))
    return found


def spans(given: Marks) -> list[tuple[Any, ...]]:
    """Stage, begin and end in ms of the spans of the second step."""
    (columns,) = (item.columns for item in batches(given) if isinstance(item, Batch) and item.table == "stage_spans")
    rows = zip(columns["step"], columns["stage"], columns["begin_ns"], columns["duration_ns"], strict=True)
    return [(stage, begin / MS - 1100, (begin + lasted) / MS - 1100) for step, stage, begin, lasted in rows if step == 1]


def test_the_collective_that_a_thread_begins_after_the_last_gradient_is_part_of_backward() -> None:
    found = spans(marks(("fwd", 2, 20), gradients=[(20, 21), (21, 30)], waits=[(25, 40), (40.1, 80)]))
    assert found == [("forward", 2, 20), ("backward", 20, 80)]


def test_a_collective_of_what_comes_after_is_not() -> None:
    later = marks(("fwd", 2, 20), gradients=[(20, 30)], waits=[(30.1, 40), (60, 90)])
    assert spans(later)[-1] == ("backward", 20, 40)
    unknown = marks(("fwd", 2, 20), ("push_telemetry", 41, 95), gradients=[(20, 30)], waits=[(30.1, 40), (42, 90)])
    assert spans(unknown)[-1] == ("backward", 20, 40)


@pytest.mark.parametrize("early_ms", [0.000001, 0.001], ids=["nanoseconds", "microseconds"])
def test_times_that_are_rounded_put_no_stage_of_the_next_step_into_this_one(early_ms: float) -> None:
    loads = ("enumerate(DataLoader)#it.__next__", 100 - early_ms, 101)
    found = spans(marks(("fwd", 2, 20), loads, gradients=[(20, 30)], waits=[]))
    assert [stage for stage, _, _ in found if stage == "data"] == ["data"] and found[-1][0] == "backward"


def test_steps_that_save_and_those_that_do_not_are_of_one_kind() -> None:
    given = marks(("fwd", 2, 20), gradients=[(20, 30)], waits=[])
    begin = max(mark.begin for mark in given.annotations if mark.name.startswith("ProfilerStep"))
    given.annotations.append(Mark(begin + 40 * MS, begin + 90 * MS, "save_checkpoint", MAIN))
    (columns,) = (item.columns for item in batches(given) if isinstance(item, Batch) and item.table == "stage_spans")
    assert "checkpoint" in columns["stage"] and len(set(columns["schema_hash"])) == 1


def test_each_microstep_has_its_own_backward() -> None:
    found = spans(
        marks(
            ("fwd", 2, 10), ("fwd", 42, 50), ("Optimizer.step#Adam", 90, 95), gradients=[(10, 30), (50, 70)], waits=[(70.1, 85)]
        )
    )
    assert found == [("forward", 2, 10), ("backward", 10, 30), ("forward", 42, 50), ("backward", 50, 85), ("optimizer", 90, 95)]


def test_without_any_mark_of_forward_it_is_what_comes_before_the_gradients() -> None:
    assert spans(marks(gradients=[(40, 60)], waits=[])) == [("forward", 0, 40), ("backward", 40, 60)]


@pytest.mark.parametrize(("between", "ends"), [((), 30), ((("push_telemetry", 22, 25),), 20)])
def test_the_loss_after_the_wrapper_of_the_model_is_forward(between: tuple[tuple[str, float, float], ...], ends: float) -> None:
    """Unless something else is known to lie between."""
    given = marks(("DistributedDataParallel.forward", 5, 20), *between, gradients=[(30, 60)], waits=[])
    assert spans(given) == [("forward", 5, ends), ("backward", 30, 60)]


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("train_batch/fwd", "forward"),
        ("fwd_bwd_pass", "backward"),
        ("bwd_pass", "backward"),
        ("model_bwd", "backward"),
        ("next_batch", "data"),
        ("get_batch", "data"),
        ("apply_opt_step", "optimizer"),
        ("after_batch_hooks", "callbacks"),
        ("log_images", "callbacks"),
        ("run_eval", "eval"),
        ("save_model", "checkpoint"),
        ("catalog", None),
        ("retrieval", None),
        ("nccl:all_reduce", None),
    ],
)
def test_names_that_people_give(name: str, stage: str | None) -> None:
    assert stage_of(name) == stage


def test_names_of_a_file_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "names.toml"
    path.write_text('step = ["^tick"]\n[stages]\ncallbacks = ["^forward_metrics$"]\nbackward = ["^phase_two$"]\n')
    monkeypatch.setenv("FORENSICS_STAGE_NAMES", str(path))
    clear = [stage_names.cache_clear, stage_of.cache_clear]
    try:
        for each in clear:
            each()
        assert [stage_of(name) for name in ("forward_metrics", "phase_two", "forward")] == ["callbacks", "backward", "forward"]
        assert stage_names().is_step("tick 7") and stage_names().is_step("ProfilerStep#7")
    finally:
        for each in clear:
            each()
