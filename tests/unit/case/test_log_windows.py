"""Which histories are asked first, and which are read from a moment on."""

from __future__ import annotations

import io
from functools import partial

import pytest

from forensics.bundle.artefact import Artefact
from forensics.case.log_windows import large_histories

DUMP = b"\x80\x02}(X\x07\x00\x00\x00versionX\x04\x00\x00\x002.10X\x09\x00\x00\x00pg_config}"


def log(rank: int, megabytes: int = 8) -> Artefact:
    return Artefact(f"ranks/{rank}/shim/host.{rank}.{100 + rank}.7.frx.zst", megabytes << 20, io.BytesIO, rank=rank)


def dump(rank: int | None, sample: int = 0, begin: bytes = DUMP) -> Artefact:
    return Artefact(f"ranks/{rank}/fr/{sample}.pickle", 8 << 20, partial(io.BytesIO, begin), rank=rank, sample=sample)


def test_logs_at_equal_distances_of_the_ranks_are_asked() -> None:
    (found,) = large_histories(
        [*(log(rank) for rank in reversed(range(128))), Artefact("ranks/3/rank.json", 1 << 30, io.BytesIO)]
    )
    assert [each.rank for each in found.sample] == list(range(0, 128, 8))


def test_all_dumps_of_a_rank_are_asked_together() -> None:
    (found,) = large_histories([dump(rank, sample) for sample in (0, 1) for rank in range(64)])
    assert [(each.rank, each.sample) for each in found.sample] == [(rank, n) for rank in range(0, 64, 4) for n in (0, 1)]
    assert len(found.paths) == 128


@pytest.mark.parametrize(
    "files",
    [
        [log(rank) for rank in range(63)],
        [log(rank, 1) for rank in range(127)],
        [dump(rank) for rank in range(63)],
        [dump(rank, begin=b"step 1 took 2 s\n") for rank in range(64)],
        [*(log(rank) for rank in range(40)), *(dump(rank) for rank in range(40))],
    ],
)
def test_few_or_small_ones_are_read_whole_and_so_is_what_is_no_history(files: list[Artefact]) -> None:
    assert large_histories(files) == []


def test_only_the_histories_of_one_kind_are_read_from_a_moment_on() -> None:
    files = [*(log(rank) for rank in range(64)), *(dump(rank) for rank in range(64))]
    logs, dumps = large_histories(files)
    assert {each.newest_ns for each in logs.ends(files, 5) if each.path in dumps.paths} == {None}
    assert {each.newest_ns for each in dumps.ends(files, 5) if each.path in dumps.paths} == {5}
