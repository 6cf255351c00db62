"""Times of stages in JSON lines, a file of each rank or one of all: who is slow, and where nobody is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forensics.ingest import choose
from forensics.model import Outcome
from tests.recordings.verdicts import named, verdict_of


def records(rank: int, late: int | None, steps: int = 12) -> list[str]:
    """A step of a rank a line; all wait for the one that is `late`."""
    found = []
    for step in range(40, 40 + steps):
        data = 0.02 + 0.001 * ((rank + step) % 3) + (1.4 if rank == late else 0)
        wait = 0.05 if late in (None, rank) else 1.45
        times = {"data_time": data, "forward_time": 0.31, "backward_time": 0.62, "grad_sync_time": wait}
        found.append(json.dumps({"_timestamp": 1764200000.0 + step, "rank": rank, "step": step, **times, "loss": 2.25}))
    return found


@pytest.mark.parametrize("late", [1, None])
def test_files_of_each_rank(tmp_path: Path, late: int | None) -> None:
    for rank in range(4):
        (tmp_path / f"metrics_rank{rank}.jsonl").write_text("\n".join(records(rank, late)) + "\n")
    verdict = verdict_of(tmp_path)
    assert named(verdict) == ({late} if late is not None else set())
    assert late is None or verdict.outcome is Outcome.SLOWDOWN


@pytest.mark.parametrize("form", ["2026-11-04T09:00:00.685000123Z {}\n", "trainer-1  | {}\n"])
def test_records_behind_what_a_runtime_of_containers_wrote(tmp_path: Path, form: str) -> None:
    for rank in range(4):
        (tmp_path / f"metrics_rank{rank}.jsonl").write_text("".join(form.format(line) for line in records(rank, 3)))
    assert named(verdict_of(tmp_path)) == {3}


def test_one_file_of_all_ranks(tmp_path: Path) -> None:
    lines = [line for step in zip(*(records(rank, 2) for rank in range(4)), strict=True) for line in step]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert named(verdict_of(tmp_path)) == {2}


@pytest.mark.parametrize(
    "record", ['{"step": 3, "loss": 2.2, "lr": 0.1}', '{"data_time": 0.1, "forward_time": 0.2}', '{"rank": 2, "name": "data"}']
)
def test_records_without_times_of_a_step_are_no_log(record: str) -> None:
    assert choose((f"{record}\n" * 5).encode(), "metrics.jsonl") is None
