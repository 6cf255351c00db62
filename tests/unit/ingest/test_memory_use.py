"""`free` as people save it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.collection import whole, write
from tests.recordings.job import Job
from tests.recordings.verdicts import stated, verdict_of
from tests.unit.ingest.reading import read, sample

# As the sample has them.
_GIB = (23, 22, 0, 0)
HEADER = "               total        used        free      shared  buff/cache   available\n"


def counters(text: str) -> dict[tuple[str, int], int]:
    return {(row["counter"], row["sample"]): row["value"] for row in read(text.encode(), "free.txt").rows("counters")}


def test_what_is_available_of_memory_and_of_swap() -> None:
    rows = sample("memory_use/free.txt").rows("counters")
    names = ("memory_bytes", "memory_available_bytes", "swap_bytes", "swap_available_bytes")
    assert {row["counter"]: row["value"] >> 30 for row in rows} == dict(zip(names, _GIB, strict=True))


@pytest.mark.parametrize(
    ("row", "whole", "left"),
    [
        ("Mem:        24684084      527784    23079360        8872     1390636    24156300", 24684084 << 10, 24156300 << 10),
        ("Mem:          2.0Ti      1.9Ti       3,2Gi       1.2Gi        22Gi       512Mi", 2 << 40, 512 << 20),
    ],
    ids=["KiB", "units, with a comma"],
)
def test_units(row: str, whole: int, left: int) -> None:
    assert counters(HEADER + row + "\n") == {("memory_bytes", 0): whole, ("memory_available_bytes", 0): left}


def test_tables_one_below_the_other_are_samples() -> None:
    table = HEADER + "Mem:  100 90 10 0 0 {}\nSwap:  8 2 6\n"
    found = counters(table.format(5) + "\n" + table.format(2))
    assert [found["memory_available_bytes", number] for number in (0, 1)] == [5 << 10, 2 << 10]
    assert found["swap_available_bytes", 1] == 6 << 10


@pytest.mark.parametrize(("left", "shown"), [(2, True), (40, False)])
def test_a_host_without_memory_stands_beside_a_rank_that_was_killed(left: int, shown: bool, tmp_path: Path) -> None:
    job = Job(4)
    job.steps(10)
    job.hang({2})
    found = whole(job, {})
    found.rank(2, "absent", exit_signal=9)
    write(tmp_path / "free", {"gpu-017/free.txt": (HEADER + f"Mem:  100 90 10 0 0 {left}\n").encode()})
    verdict = verdict_of(found.write(tmp_path / "bundle"), tmp_path / "free")
    assert verdict.suspects[0].ranks == (2,)
    assert ("of the memory of gpu-017 were available" in stated(verdict)) is shown
