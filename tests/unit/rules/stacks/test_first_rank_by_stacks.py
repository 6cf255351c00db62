"""Rank 0 alone in code of the job, the others in a barrier: a first rank that evaluates, or one that hangs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, verdict_of

SCORES = ("score_answers (judge.py:31)", "main (tune.py:60)")
READS = ("SocketIO.readinto (socket.py:720)", "ask_judge (judge.py:44)", "main (tune.py:60)")
WAITS = ("barrier (torch/distributed/distributed_c10d.py:4900)", "main (tune.py:62)")
SECONDS, MINUTES = ("10:00:03", "10:00:09"), ("10:00:03", "10:12:09")


def folder(tmp_path: Path, at: int, frames: tuple[str, ...], times: tuple[str, str], *, in_names: bool = False) -> Path:
    """Two stacks of each of four ranks, with times of day above them, or in names alone; one rank is elsewhere."""
    tmp_path.mkdir()
    for rank in range(4):
        for time in times:
            lines = "".join(f"    {frame}\n" for frame in (frames if rank == at else WAITS))
            head = f"{'' if in_names else time}\nProcess {80 + rank}: python tune.py\nPython v3.12.3 (/usr/bin/python3)\n\n"
            text = f'{head}Thread {80 + rank} (idle): "MainThread"\n{lines}'
            (tmp_path / f"rank{rank}-{time.replace(':', '')}.txt").write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("at", "frames", "times", "expected"),
    [
        (0, SCORES, SECONDS, set()),
        (0, SCORES, MINUTES, {0}),
        (0, READS, SECONDS, {0}),
        (2, SCORES, SECONDS, {2}),
    ],
    ids=["for seconds", "for minutes", "reads", "another rank"],
)
def test_a_first_rank_in_code_of_the_job(
    tmp_path: Path, at: int, frames: tuple[str, ...], times: tuple[str, str], expected: set[int]
) -> None:
    verdict = verdict_of(folder(tmp_path / "above", at, frames, times))
    assert named(verdict) == expected
    assert named(verdict_of(folder(tmp_path / "named", at, frames, times, in_names=True))) == expected
    assert bool(expected) or any("rank 0" in lead for lead in verdict.leads)
