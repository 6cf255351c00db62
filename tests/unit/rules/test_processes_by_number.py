"""Launchers that name a process by its number alone: MPICH's, and the tests of torch that start a process for each rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.verdicts import named, pasted, verdict_of

RULE = "=" * 60
SAID = "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 8102 RUNNING AT n3\n=   EXIT CODE: 139\n"
MPICH = f"{RULE}\n{SAID}{RULE}\n"
STARTED = "".join(f"I0514 06:28:46.3 90 common_distributed.py:698] Started process {r} with pid {810 + r}\n" for r in range(3))


def test_a_process_of_mpich_is_nobody_by_itself(tmp_path: Path) -> None:
    verdict = pasted(tmp_path, "epoch 2\n" + MPICH)
    assert (verdict.outcome, named(verdict)) == (Outcome.FAILSTOP, set())


def test_a_process_of_mpich_whose_rank_the_log_tells(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("[rank 3] fit on n3, pid 8102\n[rank 2] fit on n3, pid 8101\n" + MPICH)
    assert named(verdict_of(tmp_path)) == {3}


def expected(code: int, pid: int) -> str:
    return f"E       AssertionError: Expected zero exit code but got {code} for pid: {pid}\n"


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (STARTED + expected(-11, 811), {1}),
        (STARTED + expected(-6, 811), set()),
        (STARTED + expected(-9, 899), set()),
        (STARTED + STARTED.replace("process 1", "process 2") + expected(-9, 811), set()),
        (expected(-9, 811), set()),
    ],
    ids=["killed", "aborted", "another", "two ranks", "never started"],
)
def test_a_process_of_a_test_of_torch(tmp_path: Path, text: str, right: set[int]) -> None:
    assert named(pasted(tmp_path, text)) == right
