"""What a script runs before its job, by the same launcher, is none of the job's ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, pasted

SET_UP = "+ srun --ntasks=1 describe-system.sh\nsrun: error: node7: task {task}: Exited with exit code 1\n"
BEGINS = "{0}: Initializing distributed: GLOBAL_RANK: {0}, MEMBER: {1}/8\n"
ENDED = "srun: error: node7: task 5: Exited with exit code 1\nsrun: error: node7: tasks 0-4,6-7: Terminated\n"


def begin(*ranks: int) -> str:
    return "+ srun -l -n8 python fit.py\n" + "".join(BEGINS.format(rank, rank + 1) for rank in ranks)


def test_a_command_before_the_job_accuses_no_rank(tmp_path: Path) -> None:
    assert named(pasted(tmp_path, SET_UP.format(task=0) + begin(*range(8)))) == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SET_UP.format(task=0) + begin(*range(8)) + ENDED, {5}),
        (begin(*range(8)) + ENDED, {5}),
        # It never began: what the others print below comes late.
        (SET_UP.format(task=5) + begin(0, 1, 2, 3, 4, 6, 7), {5}),
    ],
    ids=["after such a command", "alone", "before it began"],
)
def test_a_task_of_the_job_is_named(tmp_path: Path, text: str, expected: set[int]) -> None:
    assert named(pasted(tmp_path, text)) == expected
