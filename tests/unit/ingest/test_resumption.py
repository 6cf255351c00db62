"""An error above steps that begin again is of an earlier attempt, if these were trained after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from forensics.ingest._job_logs.resumption import resumed
from tests.recordings.verdicts import named, pasted


@dataclass(frozen=True)
class Line:
    locator: int
    at_s: float | None
    clock: str | None = "line"


def lines(first: int, *times: float | None) -> list[Line]:
    return [Line(first + place, at) for place, at in enumerate(times)]


@pytest.mark.parametrize(
    ("below", "begin"),
    [
        (lines(11, 100, 160, 220), 11),
        (lines(11, 0, 1, 60), None),
        (lines(11, None, None, None), None),
        (lines(11, 100, 160), None),
        (lines(9, 100, 160, 220), None),
    ],
    ids=["trained later", "written late", "not dated", "a peer that was ahead", "begun above it"],
)
def test_an_error_is_over_where_steps_begin_again_later(below: Sequence[Line], begin: int | None) -> None:
    assert resumed([[lines(1, 0, 30, 60), below]], (), (), (10,)) == begin


def test_steps_that_go_on_do_not_show_that_an_error_was_survived() -> None:
    assert resumed([[lines(1, 0, 30, 60, 90, 120)]], (), (), (3,)) is None


@pytest.mark.parametrize(
    ("load", "begin"), [(11, 11), (9, None), (13, None)], ids=["below the error", "above it", "two steps below"]
)
def test_an_error_is_over_where_a_checkpoint_was_loaded_and_steps_go_on(load: int, begin: int | None) -> None:
    series = [[lines(1, None, None, None), lines(12, None, None, None)]]
    assert resumed(series, (), (), (10,), (load,)) == begin


RAISED = '[rank3]: Traceback (most recent call last):\n[rank3]:   File "a.py", line 4, in <module>\n[rank3]: ValueError: x\n'


@pytest.mark.parametrize(
    ("said", "steps", "ranks"),
    [
        ("Loading checkpoint from step 20\n", 9, set()),
        ("Resuming from the checkpoint of step 20\n", 9, set()),
        ("Loading checkpoint from step 20\n", 1, {3}),  # nothing shows that it went on
        ("Saved checkpoint of step 20\n", 9, {3}),
    ],
)
def test_the_log_of_a_job_that_loaded_a_checkpoint(tmp_path: Path, said: str, steps: int, ranks: set[int]) -> None:
    text = "step 10 loss 3.1\nstep 20 loss 3.0\n" + RAISED + said
    verdict = pasted(tmp_path, text + "".join(f"step {at} loss 2.{at}\n" for at in range(30, 30 + 10 * steps, 10)))
    pointed = {3} if any("rank 3" in each for each in verdict.leads) else set()
    assert named(verdict) | pointed == ranks


STAMPED = "I1129 {hour:02d}:{minute:02d}:10.{host}21904 139{host}02 train.py:212] step={step} loss=1.9\n"
UNHEALTHY = (
    "2026-11-29 03:43:02.118204: E external/xla/coordination_service.cc:1170] /job:jax_worker/replica:0/task:5 has been set to "
    "ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:5 heartbeat timeout.\n"
)


@pytest.mark.parametrize(("hour", "ranks"), [(3, {5}), (7, set())], ids=["the log of another host", "the job trains again"])
def test_steps_of_another_process_below_a_report_are_no_second_start(tmp_path: Path, hour: int, ranks: set[int]) -> None:
    above = "".join(STAMPED.format(hour=3, minute=at, host=0, step=4000 + 10 * at) for at in range(36, 40))
    below = "".join(STAMPED.format(hour=hour, minute=at, host=3, step=4000 + 10 * at) for at in range(37, 40))
    assert named(pasted(tmp_path, above + UNHEALTHY + below)) == ranks
