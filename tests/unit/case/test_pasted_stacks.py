"""Stacks in a ticket beside a log or a table: they count in any order, once each, and where somebody says whose they are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest

from forensics.case.build import open_case
from tests.recordings.verdicts import verdict_of

WAITS = (
    "    wait (torch/distributed/distributed_c10d.py:100)\n"
    "    all_reduce (torch/distributed/distributed_c10d.py:2501)\n    sync (fit.py:20)\n"
)
READS = "    recv_into (socket.py:700)\n    fetch (data.py:31)\n"
LOG = "".join(f"[rank0]: step {number} loss 2.{number} time 1.2 s\n" for number in range(5))
FREE = (
    "$ free -g\n               total        used        free      shared  buff/cache   available\n"
    "Mem:             503          12         402           1          88         486\n"
)


def dump(pid: int, frames: str, command: str = "$ py-spy dump --pid {0}\n") -> str:
    head = f"{command.format(pid)}Process {pid}: python fit.py\nPython v3.11.2 (/usr/bin/python3.11)\n\n"
    return f'{head}Thread {pid} (active): "MainThread"\n{frames}    main (fit.py:11)\n    <module> (fit.py:40)\n'


def fenced(text: str) -> str:
    return f"```\n{text}```\n"


def stacks(heading: str = "rank {0}:", ranks: Sequence[int] = range(4), command: str = "$ py-spy dump --pid {0}\n") -> str:
    each = (f"{heading.format(rank)}\n{fenced(dump(4100 + rank, READS if rank == 2 else WAITS, command))}" for rank in ranks)
    return "\n".join(each)


def ranks_of(folder: Path, text: str, name: str = "ticket.md") -> list[int | None]:
    (folder / name).write_text(text)
    return [rank for (rank,) in open_case([folder / name]).execute("SELECT rank FROM stacks ORDER BY rank").fetchall()]


@pytest.mark.parametrize("order", list(permutations(("log", "table", "stacks"))), ids=" ".join)
def test_they_count_in_any_order(tmp_path: Path, order: tuple[str, ...]) -> None:
    parts = {"log": fenced(LOG), "table": fenced(FREE), "stacks": stacks()}
    text = "It hangs, all that we have:\n\n" + "\nand then\n\n".join(parts[name] for name in order)
    assert ranks_of(tmp_path, text) == [0, 1, 2, 3]
    verdict = verdict_of(tmp_path)
    assert not verdict.suspects and verdict.leads[0].startswith("stacks of rank 2 minutes later: at recv_into")


def test_a_log_without_fences_ends_where_they_begin(tmp_path: Path) -> None:
    assert ranks_of(tmp_path, f"{LOG}\n{stacks().replace('```', '')}", "job.log") == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "text",
    [
        stacks("and a stack:"),
        stacks("unlike that of rank {0}:"),
        stacks("rank {0} was started again" + "\n" * 12),
        "rank 3:\n" + fenced('[rank3]: Traceback (most recent call last):\n[rank3]:   File "fit.py", line 3, in main\n'),
    ],
    ids=["of nobody", "compared", "far below", "a traceback"],
)
def test_whose_they_are_is_not_guessed(tmp_path: Path, text: str) -> None:
    assert not any(rank is not None for rank in ranks_of(tmp_path, fenced(LOG) + text))


def test_what_the_log_knows_counts_once(tmp_path: Path) -> None:
    known = stacks(command="$ py-spy dump --pid {0}  # rank 3\n", ranks=(3,)).replace("rank 3:\n", "so:\n", 1)
    assert ranks_of(tmp_path, fenced(LOG) + known + stacks(ranks=(0, 1))) == [0, 1, 3]


XID = (
    "$ dmesg -T | tail\n[Mon Mar  2 03:12:44 2026] NVRM: Xid (PCI:0000:43:00): 79, pid=4101, name=python, "
    "GPU has fallen off the bus.\n"
)
PODS = (
    "$ kubectl get pods\nNAME     READY   STATUS    RESTARTS   AGE\nfit-0    1/1     Running   0          3h\n"
    "fit-1    0/1     Error     0          3h\n"
)


@pytest.mark.parametrize("other", [XID, PODS], ids=["a kernel", "pods"])
def test_a_table_above_hides_nothing_and_counts_nothing_twice(tmp_path: Path, other: str) -> None:
    found = set()
    for number, order in enumerate(permutations((LOG, FREE, other))):
        path = tmp_path / f"{number}.md"
        path.write_text("It hangs:\n\n" + "\n\n".join(map(fenced, order)))
        case = open_case([path])
        counts = [case.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in ("log_events", "log_progress")]
        found.add(tuple(counts))
    assert found == {(1, 5)}
