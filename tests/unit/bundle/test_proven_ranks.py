"""A number in the name of a file is a rank where the files together show it; a pid never is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from forensics.bundle.reader import open_bundle
from forensics.case.build import open_case
from tests.recordings.verdicts import named, verdict_of

STACK = """Process {pid}: python train.py
Python v3.11.9 (/usr/bin/python3.11)

Thread {pid} (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2900)
    train_step (train.py:51)
    <module> (train.py:97)
"""


def folder(path: Path, names: dict[str, int]) -> Path:
    """Files of stacks: by name, the pid in it."""
    path.mkdir()
    for name, pid in names.items():
        (path / name).write_text(STACK.format(pid=pid))
    return path


def ranks_of(path: Path) -> dict[str, int | None]:
    rows = open_case([path]).execute("SELECT path, rank FROM sources ORDER BY path").fetchall()
    return {str(name).rpartition("/")[2]: rank for name, rank in rows}


@pytest.mark.parametrize(
    "names",
    [
        ["12345.txt", "12346.txt", "12347.txt"],
        ["py-spy-12345.txt", "py-spy-12399.txt"],
        ["stack_trace_12345.txt", "stack_trace_12346.txt"],
        ["py_spy_dump_4711.txt"],
        ["7.txt"],
        ["pyspy.231", "pyspy.232", "pyspy.233", "pyspy.234"],
    ],
)
def test_numbers_of_processes_are_no_ranks(tmp_path: Path, names: list[str]) -> None:
    found = ranks_of(folder(tmp_path / "job", {name: 900 + number for number, name in enumerate(names)}))
    assert list(found.values()) == ([None] if len(names) == 1 else list(range(len(names)))), "at most in the order of their ids"


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["0.txt", "1.txt", "2.txt", "3.txt"], {0, 1, 2, 3}),
        (["py-spy-0.txt", "py-spy-1.txt", "py-spy-3.txt"], {0, 1, 3}),
        (["rank0.txt", "rank1.txt", "rank2.txt", "3.txt"], {0, 1, 2, 3}),
        (["0.txt", "1.txt", "99999.txt"], {0, 1, None}),
        (["rank_12345.txt"], {12345}),
        (["stack_0.txt"], {0}),
    ],
)
def test_numbers_that_count_the_ranks_are_ranks(tmp_path: Path, names: list[str], ranks: set[int | None]) -> None:
    found = ranks_of(folder(tmp_path / "job", {name: 900 + number for number, name in enumerate(names)}))
    assert set(found.values()) == ranks


def guesses(tmp_path: Path, names: Sequence[str]) -> list[int | None]:
    for name in names:
        (tmp_path / name).write_text("x\n")
    return [each.rank for each in open_bundle([tmp_path]).artefacts]


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["0_fr_dump", "1_fr_dump", "2_fr_dump"], [0, 1, 2]),
        (["0.trace.json", "1.trace.json", "3.trace.json"], [0, 1, 3]),
        (["1_fetch.txt", "2_train.txt"], [None, None]),
        (["40510_stack.txt", "40511_stack.txt"], [None, None]),
        (["2026-11-30.log", "2026-12-01.log"], [None, None]),
        (["0_out.txt"], [None]),
    ],
    ids=["flattened", "one is missing", "other names", "processes", "dates", "alone"],
)
def test_numbers_in_front_of_names_that_are_alike(tmp_path: Path, names: list[str], ranks: list[int | None]) -> None:
    assert guesses(tmp_path, names) == ranks


def test_the_process_in_the_file_is_the_number_of_its_name(tmp_path: Path) -> None:
    names = {"0.txt": 900, "1.txt": 901, "2.txt": 2, "rank_12345.txt": 12345}
    assert ranks_of(folder(tmp_path / "job", names)) == {"0.txt": 0, "1.txt": 1, "2.txt": None, "rank_12345.txt": None}


def test_a_rank_whose_word_says_so_may_have_a_small_pid(tmp_path: Path) -> None:
    assert ranks_of(folder(tmp_path / "job", {"rank7.txt": 7})) == {"rank7.txt": 7}


def test_stacks_of_no_rank_are_named_by_their_process(tmp_path: Path) -> None:
    connection = open_case([folder(tmp_path / "job", {"12345.txt": 12345})])
    ((message,),) = connection.execute("SELECT message FROM ingest_warnings WHERE message LIKE 'no rank%'").fetchall()
    assert "for process 12345:" in message
    ((stacks,),) = connection.execute("SELECT count(*) FROM stacks WHERE rank IS NOT NULL").fetchall()
    assert stacks == 0


def test_numbers_of_dumps_need_the_same_proof(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    for name in ("fr.0", "fr.1", "fr.3", "_dump_12"):
        (tmp_path / "job" / name).write_bytes(b"x")
    found = {artefact.path: artefact.rank for artefact in open_bundle([tmp_path / "job"]).artefacts}
    assert found == {"fr.0": 0, "fr.1": 1, "fr.3": 3, "_dump_12": 12}


FAILED = "step 20 loss 2.1\nTraceback (most recent call last):\n  File 't.py', line 9, in <module>\nOSError: [Errno 5] no\n"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([f"w{node:02d}_{local}.log" for node in range(3) for local in range(4)], {None}),
        ([f"node{node}/{local}.log" for node in range(3) for local in range(4)], {None}),
        ([f"run7_{rank}.log" for rank in range(4)], {0, 1, 2, 3}),
        ([f"node{rank // 2}/{rank}.log" for rank in range(4)], {0, 1, 2, 3}),
    ],
    ids=["series of each node", "folders of nodes", "one series", "ranks over nodes"],
)
def test_numbers_that_begin_again_on_each_node_are_no_ranks(
    tmp_path: Path, names: list[str], expected: set[int | None]
) -> None:
    for number, name in enumerate(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"start {number}\n" + "".join(f"step {step} loss 2.{step}\n" for step in range(9)))
    last = tmp_path / names[-1]
    last.write_text(last.read_text() + FAILED)
    assert set(ranks_of(tmp_path).values()) == expected
    assert named(verdict_of(tmp_path)) <= ({3} if None not in expected else set())
