"""Lines that grep found in several logs, in one text: each is of the log that stands in front of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, verdict_of

OWN = ("Traceback (most recent call last):", "RuntimeError: DataLoader worker (pid 881) exited unexpectedly")
LOST = ("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2027, remote process exited",)


def searched(form: str, own: tuple[int, ...]) -> str:
    lines = ((rank, at, line) for rank in range(4) for at, line in enumerate(OWN if rank in own else LOST, 80))
    return "$ grep -n Error logs/rank_*.log\n" + "".join(form.format(rank, at, line) for rank, at, line in lines)


@pytest.mark.parametrize(
    "form", ["logs/rank_{0}.log:{1}:{2}\n", "logs/rank_{0}.log:{2}\n", "/scratch/run7/rank_{0}/stderr.log:{1}:{2}\n"]
)
def test_the_error_of_one_log_is_where_to_begin(tmp_path: Path, form: str) -> None:
    (tmp_path / "errors.txt").write_text(searched(form, (3,)))
    verdict = verdict_of(tmp_path)
    assert not named(verdict)
    assert verdict.leads[0].startswith("the error of rank 3: RuntimeError: DataLoader worker")


@pytest.mark.parametrize("own", [(0, 1, 2, 3), (1, 3)])
def test_errors_of_several_logs_tell_of_none(tmp_path: Path, own: tuple[int, ...]) -> None:
    (tmp_path / "errors.txt").write_text(searched("logs/rank_{0}.log:{1}:{2}\n", own))
    verdict = verdict_of(tmp_path)
    assert not named(verdict)
    assert not any("the error of rank" in lead for lead in verdict.leads)


def test_a_log_that_speaks_of_logs_stays_one(tmp_path: Path) -> None:
    """Of a log few lines begin so."""
    steps = "".join(f"[rank0]: step {at}/900 loss 2.{at}\n" for at in range(40, 60))
    (tmp_path / "job.log").write_text(f"{steps}logs/rank_0.log: written\nlogs/rank_1.log: written\n[rank1]: ValueError: bad\n")
    assert not any("rank_1.log" in lead for lead in verdict_of(tmp_path).leads)
