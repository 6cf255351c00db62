"""Watchdogs of several groups: the numbers within a group tell which of the ranks that are heard elsewhere belong to it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from forensics.model import Cause, Members
from tests.recordings.rank_logs import RankLogs
from tests.recordings.verdicts import named, verdict_of

# 16 ranks, tensor groups of four in a row, expert groups of four in steps of four.
WORLD, TENSOR = 16, 4
EXPERTS = {1: 0, 5: 1, 9: 2, 13: 3}


def _logs(experts: Mapping[int, int] = EXPERTS, *, states_size: bool = True) -> RankLogs:
    """The expert group gave up on work 71, every other rank on work 90 of its tensor group; `experts` are numbers within."""
    logs = RankLogs()
    for rank in range(WORLD):
        if states_size:
            logs.started(rank, WORLD)
        if rank in experts:
            logs.timed_out(rank, 70, 75, "9(EXPERT)", within=experts[rank], group_id=3)
        else:
            logs.timed_out(rank, 89, 95, f"{2 + rank // TENSOR}(TENSOR)", within=rank % TENSOR, group_id=2)
    return logs


@pytest.mark.parametrize("together", [False, True], ids=["a file each", "one file"])
def test_the_group_that_all_others_wait_for_is_named(together: bool, tmp_path: Path) -> None:
    verdict = verdict_of(_logs().write_together(tmp_path / "job.log") if together else _logs().write(tmp_path))
    (suspect,) = verdict.suspects
    assert (suspect.ranks, suspect.members, suspect.cause) == ((1, 5, 9, 13), Members.ONE_OF, Cause.UNKNOWN)
    assert suspect.stage.communicator == "9:EXPERT"
    assert {rank for victim in verdict.victims for rank in victim.ranks} == set(range(WORLD)) - EXPERTS.keys()


@pytest.mark.parametrize(
    "logs",
    [
        _logs({1: 0, 5: 1, 9: 3, 13: 2}),
        _logs({1: 0, 5: 1, 9: 2}),
        _logs({0: 0, 4: 1, 8: 2, 12: 3, 1: 4}),
    ],
    ids=["in no even steps", "one gave up elsewhere", "a fifth member"],
)
def test_members_that_may_be_others_are_not(logs: RankLogs, tmp_path: Path) -> None:
    assert named(verdict_of(logs.write(tmp_path))) == set()


def test_of_the_whole_job_nothing_is_told(tmp_path: Path) -> None:
    logs = RankLogs()
    for rank in range(WORLD):
        logs.started(rank, WORLD)
        logs.timed_out(rank, 70, 75)
    assert named(verdict_of(logs.write(tmp_path))) == set()
