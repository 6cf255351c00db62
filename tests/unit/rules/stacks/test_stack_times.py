"""Stacks of different moments, or of a job whose log goes on behind them, do not show a job that stands."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.recordings.verdicts import named, verdict_of

LOADER = "    _next_data (torch/utils/data/dataloader.py:1328)\n    __next__ (torch/utils/data/dataloader.py:631)\n"
REDUCES = "    all_reduce (torch/distributed/distributed_c10d.py:2288)\n    step (train.py:90)\n"
STACK = 'Process {pid}: python train.py\n\nThread {pid} (idle): "MainThread"\n{inner}    <module> (train.py:12)\n'


def stacks(folder: Path, times: Sequence[str]) -> Path:
    """One file for each rank with its time above; the last one is in its loader, the others wait."""
    for rank, time in enumerate(times):
        inner = LOADER if rank == len(times) - 1 else REDUCES
        (folder / f"rank{rank}.txt").write_text(f"{time}\n" + STACK.format(pid=4100 + rank, inner=inner))
    return folder


def log(folder: Path, first_minute: int, minutes: int) -> Path:
    """A line of progress each minute from 15:00 on."""
    at = range(first_minute, first_minute + minutes)
    (folder / "train.log").write_text("".join(f"2025-05-22 15:{m:02}:00 Epoch: [8][{m * 50}/5005] Loss 1.09\n" for m in at))
    return folder


@pytest.mark.parametrize(("hours", "expected"), [(0, {3}), (2, set())])
def test_stacks_that_lie_hours_apart_are_not_of_one_moment(tmp_path: Path, hours: int, expected: set[int]) -> None:
    times = [f"Thu May 22 15:4{n}:18 UTC 2025" for n in range(3)] + [f"Thu May 22 {15 - hours}:43:18 UTC 2025"]
    assert named(verdict_of(stacks(tmp_path, times))) == expected


@pytest.mark.parametrize(
    ("first", "minutes", "expected"),
    [
        pytest.param(10, 31, {3}, id="up to the stacks"),
        pytest.param(10, 33, {3}, id="two lines that a buffer held back"),
        pytest.param(10, 45, set(), id="on and on"),
        pytest.param(45, 12, {3}, id="a log of later alone is of another start, or another zone"),
    ],
)
def test_a_log_that_goes_on_behind_the_stacks(tmp_path: Path, first: int, minutes: int, expected: set[int]) -> None:
    """The zone of neither is known, so that hours are compared as they stand there."""
    times = ["Thu May 22 15:40:18 CEST 2025"] * 4
    verdict = verdict_of(log(stacks(tmp_path, times), first, minutes))
    assert named(verdict) == expected
    assert bool(expected) or any("the job moved then" in label.reason for label in verdict.labels)


TAKEN = 1747925658  # 2025-05-22 14:54:18 UTC
ZONE = 2 * 3600


@pytest.mark.parametrize(
    ("until", "copied", "recovers", "expected"),
    [
        pytest.param(0, 0, 0, {3}, id="up to the stacks"),
        pytest.param(600, 0, 0, set(), id="on and on"),
        pytest.param(600, 7, 0, {3}, id="the date of the log is that of its copy"),
        pytest.param(900, 0, 500, {3}, id="a pause around the stacks"),
    ],
)
def test_a_log_whose_date_is_that_of_its_last_line(
    tmp_path: Path, until: int, copied: int, recovers: int, expected: set[int]
) -> None:
    """Nothing in the stacks dates them; their files do, and the log says in which zone it is by its own date."""
    for rank in range(4):
        file = tmp_path / f"rank{rank}.txt"
        file.write_text(STACK.format(pid=4100 + rank, inner=LOADER if rank == 3 else REDUCES))
        os.utime(file, (TAKEN, TAKEN))
    seconds = [at for at in range(-900, until + 1, 10) if at <= 0 or at > recovers]
    at = [datetime.fromtimestamp(TAKEN + second + ZONE, UTC) for second in seconds]
    lines = [f"{when:%Y-%m-%d %H:%M:%S} Epoch: [8][{number * 50}/5005] Loss 1.09\n" for number, when in enumerate(at)]
    (tmp_path / "train.log").write_text("".join(lines))
    os.utime(tmp_path / "train.log", (written := TAKEN + seconds[-1] + copied * 50 + 1, written))
    assert named(verdict_of(tmp_path)) == expected
