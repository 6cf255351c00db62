"""Lists of the hosts of a job, and texts that only look like one."""

from __future__ import annotations

import pytest

from forensics.ingest import choose
from tests.unit.ingest.reading import read, sample


def listed(text: str) -> list[tuple[str, int, int | None]]:
    rows = read(text.encode(), "hosts").rows("nodes")
    return [(row["host"], row["node"], row["slots"]) for row in rows]


def test_the_sample() -> None:
    found = sample("host_list/handmade_hostfile")
    assert [(row["host"], row["slots"]) for row in found.rows("nodes")] == [("trn-01", 8), ("trn-02", 8), ("trn-07", 4)]
    assert not found.problems


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n-2 slots=8\nn-1 slots=4\nn-2 slots=8\n", [("n-2", 0, 8), ("n-1", 1, 4)]),
        ("n-1:8\nn-2:8\n", [("n-1", 0, 8), ("n-2", 1, 8)]),
        ("10.0.0.4 slots=2\n", [("10.0.0.4", 0, 2)]),
        ("$ scontrol show hostnames $SLURM_JOB_NODELIST\nn-1\nn-2\n", [("n-1", 0, None), ("n-2", 1, None)]),
    ],
)
def test_forms(text: str, expected: list[tuple[str, int, int | None]]) -> None:
    assert listed(text) == expected


def test_a_line_that_is_cut_or_hostile_is_a_warning() -> None:
    found = read(b"n-1 slots=8\nn-2 slots=8\n\x1b[2Jn-3 sl", "hosts")
    assert [row["host"] for row in found.rows("nodes")] == ["n-1", "n-2"]
    assert [problem.locator for problem in found.problems] == ["line=3"]


@pytest.mark.parametrize(
    "text", ["", "n-1\nn-2\n", "step: 8\nloss: 2\n", "n-1 slots=8\nthe job was fine\nn-2 slots=8\nthe end\n"]
)
def test_other_texts_are_not(text: str) -> None:
    ingester = choose(text.encode(), "hosts")
    assert ingester is None or ingester.name != "host_list"
