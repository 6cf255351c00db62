"""Dumps beside the log of a launcher that saw a rank killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Cause, Outcome
from tests.recordings.hang import hung
from tests.recordings.job import Job, as_json
from tests.recordings.rank_logs import one_behind
from tests.recordings.verdicts import named, verdict_of

TABLE = (
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    "Root Cause (first observed failure):\n"
    "[0]:\n  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: {pid})\n"
)


def folder_of(tmp_path: Path, rank: int, code: int, log: str = "") -> Path:
    """Dumps of four ranks, of which rank 2 is behind, and the log of the launcher."""
    job = hung()
    for one in range(4):
        (tmp_path / f"rank{one}.json").write_bytes(as_json(job.dump(one)))
    (tmp_path / "train.log").write_text(log + TABLE.format(rank=rank, code=code, pid=900 + rank))
    return tmp_path


def test_a_rank_that_is_behind_and_was_killed(tmp_path: Path) -> None:
    verdict = verdict_of(folder_of(tmp_path, 2, -9))
    assert verdict.outcome is Outcome.FAILSTOP
    assert [(one.ranks, one.cause) for one in verdict.suspects] == [((2,), Cause.PROCESS_DEAD)]


@pytest.mark.parametrize(("rank", "code"), [(1, -9), (2, -15), (2, -6)], ids=["it waited", "by the launcher", "by itself"])
def test_who_was_ended_while_others_are_behind_is_no_culprit(tmp_path: Path, rank: int, code: int) -> None:
    verdict = verdict_of(folder_of(tmp_path, rank, code))
    assert Cause.PROCESS_DEAD not in [one.cause for one in verdict.suspects]
    assert named(verdict) <= {2}


def test_who_was_killed_after_somebody_had_given_up(tmp_path: Path) -> None:
    gave_up = "\n".join(one_behind(2, 4).lines[0]) + "\n"
    verdict = verdict_of(folder_of(tmp_path, 2, -9, gave_up))
    assert Cause.PROCESS_DEAD not in [one.cause for one in verdict.suspects]


def test_a_log_beside_dumps_of_a_job_that_moves_is_of_another_run(tmp_path: Path) -> None:
    """Rank 2 was dumped first, and its peers came out of calls that it had not made by then."""
    job = Job(4)
    job.steps(6)
    (tmp_path / "rank2.json").write_bytes(as_json(job.dump(2)))
    job.steps(2)
    for rank in (0, 1, 3):
        (tmp_path / f"rank{rank}.json").write_bytes(as_json(job.dump(rank)))
    (tmp_path / "train.log").write_text(TABLE.format(rank=2, code=-9, pid=902))
    assert Cause.PROCESS_DEAD not in [one.cause for one in verdict_of(tmp_path).suspects]
