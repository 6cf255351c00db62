"""Times of day in the names of files: looks at a job that stands still, and numbers that only look like times."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.case.named_times import clock, rounds_of
from forensics.model import Outcome, Verdict
from tests.recordings.verdicts import named, verdict_of

WAITS = "all_reduce (torch/distributed/distributed_c10d.py:2195)\n    reduce (train.py:50)"
LOADS = "read (gzip.py:321)\n    __getitem__ (data.py:88)\n    __next__ (torch/utils/data/dataloader.py:631)"


def stack(rank: int, inner: str, line: int = 9) -> str:
    return (
        f'Process {4100 + rank}: python train.py\nThread {4100 + rank} (idle): "MainThread"\n'
        f"    {inner}\n    main (train.py:{line})\n    <module> (train.py:12)\n"
    )


def looks(folder: Path, names: dict[tuple[int, int], str], late: int = 2, moves: bool = False) -> Verdict:
    """Each rank's stack in two looks, under the name of rank and look; where it moves another one is late at the second."""
    for (rank, look), name in names.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        odd = (late + look * moves) % 4
        path.write_text(stack(rank, LOADS if rank == odd else WAITS))
    return verdict_of(folder)


def both(form: str, first: str = "1405", second: str = "1433") -> dict[tuple[int, int], str]:
    return {(r, look): form.format(rank=r, time=time) for r in range(4) for look, time in enumerate((first, second))}


@pytest.mark.parametrize(
    ("form", "first", "second"),
    [
        ("rank{rank}_{time}.txt", "1405", "1433"),
        ("{time}/rank{rank}.txt", "1405", "1433"),
        ("rank{rank}_20250713_{time}.txt", "140507", "141112"),
        ("rank{rank}.{time}.txt", "14h05", "14h33"),
        ("rank{rank}_{time}.txt", "2355", "0010"),
        ("rank{rank}_{time}.txt", "140507", "140541"),
        ("rank{rank}_2025-07-13_{time}.txt", "14-05-07", "14-05-41"),
        ("rank{rank}-20250713T{time}.txt", "140507", "140541"),
        ("{time}/rank{rank}.txt", "23:59:50", "00:00:20"),
    ],
)
def test_a_rank_that_is_at_one_place_in_both_looks_is_named(tmp_path: Path, form: str, first: str, second: str) -> None:
    verdict = looks(tmp_path, both(form, first, second))
    assert named(verdict) == {2} and verdict.outcome is Outcome.HANG


def test_some_ranks_are_looked_at_again(tmp_path: Path) -> None:
    names = both("rank{rank}_{time}.txt")
    assert named(looks(tmp_path, {key: name for key, name in names.items() if key != (0, 1) and key != (3, 1)})) == {2}


@pytest.mark.parametrize("form", ["rank{rank}_{time}.txt", "{time}/rank{rank}.txt"])
def test_a_job_that_moves_is_not_accused(tmp_path: Path, form: str) -> None:
    verdict = looks(tmp_path, both(form), moves=True)
    assert not named(verdict) and verdict.outcome is not Outcome.HANG


@pytest.mark.parametrize(
    "names",
    [
        both("rank{rank}_{time}.txt", "a", "b"),
        both("rank{rank} ({time}).txt", "1", "2"),
        both("rank{rank}_{time}.txt", "2024", "2025"),
        both("rank{rank}_{time}.txt", "1405", "1406"),  # within one round
        both("rank{rank}_{time}.txt", "140507", "140510"),  # forms of one look
        both("rank{rank}_{time}.txt", "1405", "9999"),
        {**both("rank{rank}_{time}.txt"), (0, 1): "rank0_again.txt"},  # not all have one
        {(r, look): f"rank{r}_{1405 + 28 * look}.txt" for r in (2,) for look in (0, 1)} | {(1, 0): "rank1_1405.txt"},  # too few
    ],
)
def test_numbers_that_are_no_times_prove_nothing(tmp_path: Path, names: dict[tuple[int, int], str]) -> None:
    looks(tmp_path, names)
    assert not open_case([tmp_path]).execute("SELECT * FROM moments WHERE proof = 'names'").fetchall()


def test_the_number_of_a_process_is_no_time() -> None:
    assert clock("py-spy_1502.txt", 1502) is None and clock("py-spy_1502.txt", 1503) == 15 * 3600 + 120
    assert clock("py-spy_9101_1421.txt") == clock("1421/py-spy_1502.txt", 1502) == clock("py-spy_1502_1421.txt", 1502) == 51_660
    assert clock("py-spy_1502_1421.txt") is None and clock("py-spy_9101.txt") is None
    assert rounds_of((time, time % 2) for time in (0, 7, 3600, 3607)) == [0, 0, 1, 1]
    assert not rounds_of([(0, 0), (7, 1), (3600, 0), (None, 1)])
    assert rounds_of([(1, 0), (31, 1), (40, 0), (70, 1)]) == [0, 0, 1, 1]


def test_a_time_of_day_above_each_stack(tmp_path: Path) -> None:
    """One file of all processes in each look, whose names tell nothing."""
    for look, time in enumerate(("02:44:0{}", "02:53:1{}")):
        parts = (
            f"=== rank {rank} ===\n{time.format(rank)}\n{stack(rank, LOADS if rank == 2 else WAITS)}\n" for rank in range(4)
        )
        (tmp_path / f"stacks_{'ab'[look]}.txt").write_text("".join(parts))
    verdict = verdict_of(tmp_path)
    assert named(verdict) == {2}
    assert open_case([tmp_path]).execute("SELECT count(*) FROM moments WHERE proof = 'names'").fetchall() == [(8,)]


def test_looks_are_numbered_in_their_order(tmp_path: Path) -> None:
    looks(tmp_path, both("{time}/rank{rank}.txt"))
    rows = open_case([tmp_path]).execute("SELECT DISTINCT sample, proof FROM moments ORDER BY sample").fetchall()
    assert rows == [(0, "names"), (1, "names")]


@pytest.mark.parametrize(
    ("path", "seconds"),
    [
        ("a/pyspy_20945_0312.txt", 3 * 3600 + 12 * 60),
        ("1934/ml-b_pid1502.txt", 19 * 3600 + 34 * 60),
        ("rank3_2025.txt", None),
        ("rank3_2561.txt", None),
        ("rank3.txt", None),
        ("0312_0331.txt", None),
    ],
)
def test_the_time_in_a_name(path: str, seconds: int | None) -> None:
    assert clock(path) == seconds
