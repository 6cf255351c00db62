"""Stacks merged over ranks: read for their ranks, and for nobody without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.ingest import choose
from forensics.rules.diagnosis import diagnose
from tests.unit.ingest.reading import SAMPLES, read, sample

NAME = "folded_stacks/handmade_ranks.folded"


def test_each_rank_of_a_line_has_its_stack() -> None:
    found = sample(NAME)
    assert found.problems == [] and [row["rank"] for row in found.rows("stacks")] == [0, 1, 3, 2]
    assert all(row["is_main"] for row in found.rows("stacks"))
    inner = found.stack(found.row("stacks", rank=0)["call_path"])[0]
    assert inner == ("all_reduce", "torch/distributed/distributed_c10d.py", 2810)


def test_the_rank_that_is_elsewhere_is_found() -> None:
    verdict = diagnose(open_case([SAMPLES / NAME]))
    assert [(suspect.ranks, str(suspect.stage.name)) for suspect in verdict.suspects] == [((2,), "data")]


def test_ranks_may_stand_before_their_stacks() -> None:
    found = read(b"# ranks 0-3,5\nmain (a.py:1);step (a.py:2) 12\nmain (a.py:1);other (a.py:9) 3\n")
    assert sorted(row["rank"] for row in found.rows("stacks")) == sorted([0, 1, 2, 3, 5] * 2)
    assert not any(row["is_main"] for row in found.rows("stacks"))


def test_all_ranks_in_one_stack_accuse_nobody(tmp_path: Path) -> None:
    line = (SAMPLES / NAME).read_text().splitlines()[0]
    (tmp_path / "a.txt").write_text(line.replace("ranks 0-1,3", "ranks 0-3") + "\n")
    assert diagnose(open_case([tmp_path])).suspects == ()


@pytest.mark.parametrize(
    "text",
    ["a;b;c 12\nd;e 3\n", "ranks 0-3\nall is well\n", "x = 1; y = 2 ranks\n", "a;b 3 ranks 9-2\n", "a;b 1 ranks 0-9999999\n"],
)
def test_what_names_no_ranks_is_left_alone(text: str) -> None:
    found = choose(text.encode(), "notes.txt")
    assert found is None or found.name != "folded_stacks"


@pytest.mark.slow
def test_cut_and_hostile_text() -> None:
    text = (SAMPLES / NAME).read_bytes()
    assert len(read(text[:-3] + b"\nc;d 3\n").problems) == 1
    found = read(text + b"a;" * 60_000 + b"b 1 ranks 0\n" + b"a;b 1 ranks 0-999998\n" * 4)
    assert any("were left out" in problem.message or "the rest was" in problem.message for problem in found.problems)
