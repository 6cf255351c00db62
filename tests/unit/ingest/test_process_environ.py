"""Environments beside stacks whose files have only the number of a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from tests.recordings.verdicts import named, verdict_of

STACK = """Process {pid}: python {command}
Python v3.11.7 (python3.11)

Thread {pid} (idle): "MainThread"
    {top}
    main (train.py:50)
    <module> (train.py:60)
"""
WAITS = "all_reduce (torch/distributed/distributed_c10d.py:3252)"
SLEEPS = "fetch (shards.py:27)"


def stacks(folder: Path, command: str = "train.py") -> None:
    for rank, pid in enumerate((907, 901, 905, 903)):
        text = STACK.format(pid=pid, command=command.format(rank), top=SLEEPS if rank == 2 else WAITS)
        (folder / f"node-a_{pid}.txt").write_text(text)


def environment(folder: Path, pid: int, rank: int, name: str = "env_{}.txt", end: str = "\n") -> None:
    values = {"PATH": "/bin", "API_TOKEN": "secret", "RANK": rank, "WORLD_SIZE": 4, "LOCAL_RANK": rank, "SHLVL": len(name)}
    path = folder / name.format(pid)
    path.parent.mkdir(exist_ok=True)
    path.write_text(end.join(f"{key}={value}" for key, value in values.items()) + end)


@pytest.mark.parametrize(("name", "end"), [("env_{}.txt", "\n"), ("{}/environ", "\0"), ("environ.{}", "\n")])
def test_a_process_is_the_rank_that_its_environment_says(tmp_path: Path, name: str, end: str) -> None:
    stacks(tmp_path)
    for rank, pid in enumerate((907, 901, 905, 903)):
        environment(tmp_path, pid, rank, name, end)
    assert named(verdict_of(tmp_path)) == {2}
    connection = open_case([tmp_path])
    assert connection.execute("SELECT count(*) FROM ingest_warnings WHERE message LIKE 'no rank%'").fetchall() == [(0,)]
    assert connection.execute("SELECT DISTINCT key FROM job_config WHERE key NOT LIKE 'bundle.%'").fetchall() == [
        ("world_size",)
    ]


def test_a_number_of_two_ranks_proves_nothing(tmp_path: Path) -> None:
    stacks(tmp_path)
    for folder, ranks in (("a", (0, 1, 2, 3)), ("other", (3, 2, 1, 0))):
        for rank, pid in zip(ranks, (907, 901, 905, 903), strict=True):
            environment(tmp_path, pid, rank, f"{folder}_env_{{}}.txt")
    assert not named(verdict_of(tmp_path))


def test_settings_that_are_of_no_process(tmp_path: Path) -> None:
    stacks(tmp_path)
    environment(tmp_path, 907, 2, "job.env")
    connection = open_case([tmp_path])
    assert connection.execute("SELECT DISTINCT rank_method FROM ranks").fetchall() == [("guessed",)]
    assert connection.execute("SELECT message FROM ingest_warnings WHERE path = 'job.env'").fetchall()


@pytest.mark.parametrize(
    ("command", "is_guessed"),
    [
        ("train.py --rank {} --world-size 4", False),
        ("train.py --rank={} --lr 1 --world_size=4", False),
        ("train.py --rank {}", True),
    ],
)
def test_a_rank_that_the_command_gives(tmp_path: Path, command: str, is_guessed: bool) -> None:
    """Without the size the option may be that of a matrix: the process is named beside the number."""
    stacks(tmp_path, command)
    (suspect,) = verdict_of(tmp_path).suspects
    assert (suspect.ranks, bool(suspect.processes)) == ((2,), is_guessed)


@pytest.mark.parametrize("text", ["RANK={}\nWORLD_SIZE=4\n", "RANK={}\n", "LOCAL_RANK=0\nRANK={}\n"])
def test_what_grep_leaves_of_an_environment(tmp_path: Path, text: str) -> None:
    stacks(tmp_path)
    for rank, pid in enumerate((907, 901, 905, 903)):
        (tmp_path / f"env_{pid}.txt").write_text(text.format(rank))
    assert named(verdict_of(tmp_path)) == {2}


def test_a_note_with_commands_is_of_the_processes_in_them(tmp_path: Path) -> None:
    stacks(tmp_path)
    commands = (
        f"$ cat /proc/{pid}/environ\nRANK={rank}\nWORLD_SIZE=4\nLOCAL_RANK={rank}\n"
        for rank, pid in enumerate((907, 901, 905, 903))
    )
    (tmp_path / "note.txt").write_text("".join(commands))
    assert named(verdict_of(tmp_path)) == {2}
    assert not open_case([tmp_path]).execute("SELECT message FROM ingest_warnings WHERE message LIKE '%in its name'").fetchall()


@pytest.mark.parametrize("front", ["pid {}: ", "PID={} ", "{}: ", "/proc/{}/environ: "])
def test_several_processes_one_a_line(tmp_path: Path, front: str) -> None:
    stacks(tmp_path)
    lines = [f"{front.format(pid)}RANK={rank} LOCAL_RANK={rank}\n" for rank, pid in enumerate((907, 901, 905, 903))]
    (tmp_path / "ranks_of_node-a.txt").write_text("".join(lines))
    assert named(verdict_of(tmp_path)) == {2}
