"""Which logs are asked first, and which are read from a moment on."""

from __future__ import annotations

import io

import pytest

from forensics.bundle.artefact import Artefact
from forensics.case.log_windows import ends_only, sampled_logs


def log(rank: int, megabytes: int = 8) -> Artefact:
    return Artefact(f"ranks/{rank}/shim/host.{rank}.{100 + rank}.7.frx.zst", megabytes << 20, io.BytesIO, rank=rank)


def test_logs_at_equal_distances_of_the_ranks_are_asked() -> None:
    found = sampled_logs([*(log(rank) for rank in reversed(range(128))), Artefact("ranks/3/rank.json", 1 << 30, io.BytesIO)])
    assert [each.rank for each in found] == list(range(0, 128, 8))


@pytest.mark.parametrize("logs", [[log(rank) for rank in range(63)], [log(rank, 1) for rank in range(255)]])
def test_few_or_small_logs_are_read_whole(logs: list[Artefact]) -> None:
    assert sampled_logs(logs) == []


def test_only_logs_are_read_from_a_moment_on() -> None:
    other = Artefact("ranks/0/fr/pipe", 1, io.BytesIO)
    assert [each.newest_ns for each in ends_only([log(0), other], 5)] == [5, None]
