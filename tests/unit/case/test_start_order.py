"""Processes that nothing names are counted in the order of their ids, and only where that can be meant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from forensics.case.build import open_case

WORK = "    all_reduce (torch/distributed/distributed_c10d.py:2900)\n    step (train.py:51)\n"
TRAINS = f"{WORK}    <module> (train.py:97)\n"
LAUNCHES = "    wait (subprocess.py:1264)\n    main (torch/distributed/run.py:920)\n    <module> (torchrun:8)\n"
FETCHES = "    get (queues.py:113)\n    _worker_loop (torch/utils/data/_utils/worker.py:275)\n    <module> (train.py:97)\n"
_START = "    _bootstrap (multiprocessing/process.py:314)\n    start (multiprocessing/process.py:121)\n"
FORKED = f"{WORK}{_START}    <module> (train.py:99)\n"
JOINS = "    poll (multiprocessing/popen_fork.py:27)\n    join (multiprocessing/process.py:149)\n    <module> (train.py:99)\n"
ENDS = "    _shutdown (threading.py:1590)\n"
UPLOADS = 'Thread 7001 (idle): "uploader"\n    wait (threading.py:327)\n    upload ({0})\n    run (threading.py:982)\n'
SERVES = "    select (selectors.py:415)\n    <module> (tensorboard:8)\n"


def ranks_of(path: Path, stacks: dict[int, str]) -> dict[int, int | None]:
    """Rank by pid, from a folder of one file for each process."""
    path.mkdir()
    for pid, frames in stacks.items():
        text = f'Process {pid}: python\nPython v3.11.9 (/usr/bin/python3.11)\n\nThread {pid} (idle): "MainThread"\n{frames}'
        (path / f"stack-{pid}.txt").write_text(text)
    return dict(open_case([path]).execute("SELECT pid, any_value(rank) FROM stacks GROUP BY pid ORDER BY pid").fetchall())


@pytest.mark.parametrize(
    ("stacks", "ranks"),
    [
        ({4711: TRAINS, 4713: TRAINS, 998: TRAINS}, {998: 0, 4711: 1, 4713: 2}),
        ({90: LAUNCHES, 91: TRAINS, 92: TRAINS, 93: FETCHES, 94: FETCHES}, {90: None, 91: 0, 92: 1, 93: None, 94: None}),
        ({90: JOINS, 91: FORKED, 92: FORKED}, {90: None, 91: 0, 92: 1}),
        ({90: TRAINS, 91: SERVES}, {90: None, 91: None}),
        ({90: TRAINS}, {90: None}),
        ({90: TRAINS, 91: ENDS + UPLOADS.format("train.py:12"), 92: TRAINS}, {90: 0, 91: 1, 92: 2}),
        ({90: TRAINS, 91: ENDS + UPLOADS.format("agent.py:12"), 92: TRAINS}, {90: 0, 91: None, 92: 1}),
        ({90: TRAINS, 91: ENDS, 92: TRAINS}, {90: 0, 91: None, 92: 1}),
    ],
    ids=["order", "launcher and workers", "forked", "two programs", "one", "one ends", "another ends", "an unknown one ends"],
)
def test_processes_of_one_program_are_counted(tmp_path: Path, stacks: dict[int, str], ranks: dict[int, int | None]) -> None:
    assert ranks_of(tmp_path / "job", stacks) == ranks


@pytest.mark.parametrize(
    ("hosts", "ranks"),
    [
        ({"node10": (71, 72), "node9": (80, 81)}, {80: 0, 81: 1, 71: 2, 72: 3}),
        ({"node10": (71, 72), "node9": (80,)}, {71: None, 72: None, 80: None}),
        ({"node1": (71, 72), "host1": (80, 81)}, {71: None, 72: None, 80: None, 81: None}),
    ],
    ids=["by number", "one has more", "other names"],
)
def test_processes_of_several_hosts_are_counted_where_their_names_are_alike(
    tmp_path: Path, hosts: dict[str, tuple[int, ...]], ranks: dict[int, int | None]
) -> None:
    for host, pids in hosts.items():
        for pid in pids:
            text = f'Process {pid}: python\nPython v3.11.9 (/usr/bin/python3.11)\n\nThread {pid} (idle): "MainThread"\n{TRAINS}'
            (tmp_path / f"{host}_pid{pid}_0310.txt").write_text(text)
    query = "SELECT pid, any_value(rank) FROM stacks GROUP BY pid ORDER BY pid"
    assert dict(open_case([tmp_path]).execute(query).fetchall()) == ranks


TIMED_OUT = (
    "[E1124 09:21:11.118 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=73, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600087 milliseconds\n"
)
STARTS = "Using world size: 8, data-parallel size: 8, tensor-model-parallel size: 1\n"


@pytest.mark.parametrize("text", [TIMED_OUT, STARTS], ids=["a rank is named", "others are missing"])
def test_nothing_is_counted_beside_what_is_known(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.log").write_text(text)
    ranks_of(tmp_path / "stacks", {91: TRAINS, 92: TRAINS})
    query = "SELECT count(*) FROM stacks WHERE rank IS NOT NULL"
    assert open_case([tmp_path]).execute(query).fetchall() == [(0,)]


NATIVE = "#0  0x00007f1 in read (fd=9) at read.c:26\n#1  0x000058 in Py_RunMain () at main.c:680\n#2  0x000058 in _start ()\n"
TABLE = "$ ps -o pid,stat,wchan:24,args -C python\n  PID STAT WCHAN                    COMMAND\n"
ROW = "{0} Rl+  -                        python -u train.py --local-rank {1}\n"


def native(path: Path, local_ranks: Sequence[int]) -> list[tuple[int, int | None]]:
    """Rank by pid of processes whose last one only gdb was attached to, and a table of all of them in the same text."""
    pids = range(40, 40 + len(local_ranks))
    text = "".join(
        f"$ py-spy dump -p {pid}\nProcess {pid}: python -u train.py --local-rank {n}\n"
        f'Thread {pid} (idle): "MainThread"\n{TRAINS}\n'
        for pid, n in list(zip(pids, local_ranks, strict=True))[:-1]
    )
    table = TABLE + "".join(ROW.format(pid, n) for pid, n in zip(pids, local_ranks, strict=True))
    path.write_text(f"{text}$ gdb -p {pids[-1]} -batch -ex bt\n{NATIVE}\n{table}")
    case = open_case([path])
    return case.execute("SELECT pid, any_value(rank) FROM stacks GROUP BY pid ORDER BY pid").fetchall()


@pytest.mark.parametrize(
    ("local_ranks", "last"), [((0, 1, 2), 2), ((1, 2, 0), 0), ((0, 1, 1), None)], ids=["last", "first", "of another job"]
)
def test_a_process_without_python_frames_is_counted_by_its_number(
    tmp_path: Path, local_ranks: Sequence[int], last: int | None
) -> None:
    assert native(tmp_path / "ticket.txt", local_ranks)[-1] == (42, last)
