"""Whose the stacks of several processes in one text are: headings, commands, labels of launchers, and what is none of these."""

from __future__ import annotations

from pathlib import Path
from time import process_time

import pytest

from forensics.case.build import open_case
from tests.recordings.verdicts import named, verdict_of
from tests.unit.ingest.reading import Result, read

WAITS = "    barrier (torch/distributed/distributed_c10d.py:4159)\n    save (trainer.py:88)\n"
READS = "    read (ssl.py:1166)\n    readinto (socket.py:717)\n    fetch (trainer.py:51)\n"
COMMAND = "/usr/bin/python3 -u trainer.py"


def stack(pid: int, frames: str = WAITS, command: str = COMMAND) -> str:
    main = f'Thread {pid} (idle): "MainThread"\n{frames}    main (trainer.py:120)\n    <module> (trainer.py:140)\n'
    waiter = f'Thread {pid + 40} (idle): "Thread-1"\n    wait (threading.py:324)\n    run (threading.py:953)\n'
    return f"Process {pid}: {command}\nPython v3.10.14 (/usr/bin/python3.10)\n\n{main}{waiter}"


def mains(found: Result, *columns: str) -> list[tuple[object, ...]]:
    return [tuple(row.get(name) for name in columns) for row in found.rows("stacks") if row["is_main"]]


@pytest.mark.parametrize(
    ("above", "rank", "host"),
    [
        ("<summary>rank 5</summary>", 5, None),
        ("<details><summary><b>Rank 5</b></summary>", 5, None),
        ("and rank 5:", 5, None),
        ("Here the stack of rank 5 (second try):", 5, None),
        ("#### py-spy for rank 5 (pid 71)", 5, None),
        ("process of rank 5", 5, None),
        ("Node 0 GPU 5 (global rank 5)", 5, None),
        ("node 1, local rank 1, global rank 5/8", 5, None),
        ("2. rank 5 on gpu-07, pid 71", 5, None),
        ("▶ Rank 5's stack 12:30:11", 5, None),
        ("rank 5 的堆栈：", 5, None),
        ("rank 5, py-spy (all others the same):", 5, None),
        ("**rank 5** (pid 71, pod worker-5):", 5, None),
        ("Freezes after ~2 epochs. Stack of **rank 5** (pid 71):", 5, None),
        ("rank 5 step 100", None, None),
        ("[rank5]: RuntimeError: out of memory", None, None),
        ("root@gpu-01:/workspace# py-spy dump --pid 71  # rank 5", 5, "gpu-01"),
        ("$ kubectl exec llm-worker-5 -- py-spy dump --pid 71", None, "llm-worker-5"),
        ("$ ssh dgx-017 sudo py-spy dump -p 71", None, "dgx-017"),
        ("$ ssh dgx-017 sudo py-spy dump -p 71   # rank 5", 5, "dgx-017"),
        ("$ py-spy dump -p 71   # local rank 5", None, None),
        ("--- pod/llm-worker-5 ---", None, "llm-worker-5"),
        ("== dgx-017 (10.1.0.17) ==", None, "dgx-017"),
        ("pod: llm-worker-5", None, "llm-worker-5"),
        ("+ kubectl exec llm-worker-5 -- py-spy dump --pid 71", None, "llm-worker-5"),
        ("---------------\ndgx-017\n---------------", None, "dgx-017"),
        ("[3] 10:32:01 [SUCCESS] dgx-017", None, "dgx-017"),
        ("dgx-017 | CHANGED | rc=0 >>", None, "dgx-017"),
        ("=== sample-2 ===", None, None),
        ("### round2", None, None),
        ("--- py-spy-3 ---", None, None),
        ("=== stack_5.txt ===", None, None),
    ],
)
def test_a_line_above_a_stack_says_whose_it_is(above: str, rank: int | None, host: str | None) -> None:
    found = read(f"{above}\n{stack(71)}".encode(), "stacks.txt")
    assert mains(found, "rank", "host") == [(rank, host)]


def test_ranks_below_a_host_are_of_that_host() -> None:
    text = "".join(
        f"=== dgx-0{host} ===\n" + "".join(f"--- rank {2 * host + k} ---\n{stack(70 + k)}" for k in (0, 1)) for host in (0, 1)
    )
    assert mains(read(text.encode(), "all.txt"), "rank", "host", "pid") == [
        (0, "dgx-00", 70),
        (1, "dgx-00", 71),
        (2, "dgx-01", 70),
        (3, "dgx-01", 71),
    ]


def test_two_rounds_of_ranks_in_one_text_are_two_samples() -> None:
    rounds = "".join(
        f"==== 2026-05-04T02:0{at}:00Z ====\n" + "".join(f"--- rank {k} ---\n{stack(70 + k)}" for k in (0, 1)) for at in (1, 3)
    )
    found = mains(read(rounds.encode(), "all.txt"), "rank", "sample", "time_ns")
    assert [each[:2] for each in found] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert found[0][2] == found[1][2] is not None and int(str(found[2][2])) - int(str(found[0][2])) == 120 * 10**9


def test_lines_of_tasks_may_be_mixed() -> None:
    texts = {
        task: [f"{task}: {line}" for line in stack(900 + task, READS if task == 1 else WAITS).splitlines()] for task in range(3)
    }
    mixed = "\n".join(line for lines in zip(*texts.values(), strict=False) for line in lines) + "\n" + "\n".join(texts[1][-1:])
    found = read(mixed.encode(), "srun.out")
    assert sorted(mains(found, "rank", "pid")) == [(0, 900), (1, 901), (2, 902)]
    (path,) = [row["call_path"] for row in found.rows("stacks") if row["is_main"] and row["rank"] == 1]
    assert found.stack(path)[0][0] == "read"


def test_a_task_that_starts_several_processes_is_no_rank() -> None:
    text = "".join(f"{task}: {line}\n" for task in (0, 1) for pid in (50, 51) for line in stack(pid).splitlines())
    assert mains(read(text.encode(), "srun.out"), "rank", "host", "pid") == [
        (None, f"task {task}", pid) for task in (0, 1) for pid in (50, 51)
    ]


def test_pods_whose_processes_have_one_number_are_ranks_of_their_own(tmp_path: Path) -> None:
    text = "".join(f"--- pod/llm-worker-{k} ---\n{stack(77, READS if k == 2 else WAITS)}" for k in range(4))
    (tmp_path / "stacks.log").write_text(text)
    verdict = verdict_of(tmp_path)
    assert named(verdict) == {2}
    assert verdict.suspects[0].hosts == ("llm-worker-2",)


def test_numbers_on_the_host_in_commands_order_the_ranks(tmp_path: Path) -> None:
    for pid, local in ((410, 2), (417, 0), (433, 3), (452, 1)):
        frames = READS if local == 3 else WAITS
        (tmp_path / f"stack_{pid}.txt").write_text(stack(pid, frames, f"{COMMAND} --local_rank={local} --lr 3e-4"))
    connection = open_case([tmp_path])
    found = connection.execute("SELECT pid FROM ranks ORDER BY rank").fetchall()
    connection.close()
    assert found == [(417,), (452,), (410,), (433,)]
    assert named(verdict_of(tmp_path)) == {3}


def test_a_number_that_is_missing_among_the_ranks_is_where_to_look(tmp_path: Path) -> None:
    for rank in (0, 1, 2, 4, 5):
        (tmp_path / f"rank{rank}.txt").write_text(stack(300 + rank))
    verdict = verdict_of(tmp_path)
    assert named(verdict) == set()
    assert any("rank 3: neither a stack nor a whole record of it is here" in lead for lead in verdict.leads)


def test_the_host_stands_in_front_of_each_line() -> None:
    text = "".join(f"dgx-0{host}: {line}\n" for host in (1, 2) for line in stack(71).splitlines())
    assert mains(read(text.encode(), "pdsh.out"), "host", "pid") == [("dgx-01", 71), ("dgx-02", 71)]


@pytest.mark.parametrize("apart", [0, 1], ids=["alike but for who stands elsewhere", "each with numbers of its own"])
def test_files_called_by_pods_are_of_processes_of_their_own(apart: int, tmp_path: Path) -> None:
    """Pods that started alike and wait alike leave the same bytes; the copy of a file in another folder is of the same pod."""
    for k in range(4):
        text = stack(1, READS if k == 2 else WAITS).replace("Thread 41 ", f"Thread {41 + apart * k} ")
        for folder in (tmp_path, tmp_path / "again"):
            folder.mkdir(exist_ok=True)
            (folder / f"llm-worker-{k}.txt").write_text(text)
    verdict = verdict_of(tmp_path)
    assert named(verdict) == {2}
    assert verdict.suspects[0].hosts == ("llm-worker-2",)


def test_the_host_of_a_rank_is_that_of_the_command_that_took_its_stack(tmp_path: Path) -> None:
    """A text names several hosts: that of its first command is not the host of all."""
    text = "".join(
        f"$ ssh dgx-0{k // 2} py-spy dump -p {70 + k}  # rank {k}\n{stack(70 + k, READS if k == 3 else WAITS)}"
        for k in range(4)
    )
    (tmp_path / "notes.txt").write_text(text)
    verdict = verdict_of(tmp_path)
    assert [(suspect.ranks, suspect.hosts) for suspect in verdict.suspects] == [((3,), ("dgx-01",))]


@pytest.mark.parametrize(
    ("arguments", "rank"),
    [
        ("--rank 3 --world_size 8", 3),
        ("--world-size=8 --rank=3", None),
        ("--rank=3 --lr 1 --world-size=8", 3),
        ("--rank 3", None),
        ("--rank=x --rank 3 --rank 4 --world_size 8", 3),
        (("--rank 1 " * 7_000 + "\nProcess 88: python ") * 4, None),
    ],
    ids=["both", "the size is first", "something between", "no size", "one is no number", "very many"],
)
def test_the_rank_of_so_many_in_a_command(arguments: str, rank: int | None) -> None:
    began = process_time()
    found = read((stack(7) + stack(88, command=f"python train.py {arguments}")).encode(), "stack.txt")
    assert mains(found, "pid", "rank") == [(7, None), (88, rank)] and process_time() - began < 2


@pytest.mark.parametrize("language", ["", "text"])
def test_dumps_of_a_timer_in_a_page_of_markdown(language: str) -> None:
    """What stands around the fences nobody's process wrote; beside its own lines they are of a log."""
    timer = "Timeout (0:02:00)!\nThread 0x00007f57caf7{0} (most recent call first):\n"
    frames = '  File "/w/torch/distributed/distributed_c10d.py", line 4159 in barrier\n  File "/w/t.py", line 9 in <module>\n'
    fences = (f"rank {rank}:\n\n```{language}\n{timer.format(1740 + rank)}{frames}```\n\n" for rank in range(2))
    page = "It hangs after the first epoch.\n\n" + "".join(fences)
    assert [row["rank"] for row in read(page.encode(), "issue.md").rows("stacks")] == [0, 1]
    among = page.replace("Timeout (", "loss 2.1, lr 3e-4\nTimeout (")
    assert read(among.encode(), "issue.md").ingester == "training_log"


NATIVE = "#0  0x00007f1 in read (fd=9) at read.c:26\n#1  0x000058 in Py_RunMain () at main.c:680\n#2  0x000058 in _start ()\n"


@pytest.mark.parametrize(
    "command",
    ["$ sudo gdb -p 77 -batch -ex bt", "$ gdb --batch --pid=77 -ex bt", "ssh dgx-017 sudo gdb -p 77 -ex bt", "$ pstack 77"],
)
def test_the_process_that_a_debugger_was_given(command: str) -> None:
    """Below stacks with headers too: what gdb prints of one thread has none."""
    found = read(f"$ py-spy dump --pid 71\n{stack(71)}{command}\n{NATIVE}".encode(), "stacks.txt")
    assert [pid for (pid,) in mains(found, "pid")] == [71, 77]


def test_frames_that_gdb_numbers_below_a_header_are_of_that_thread() -> None:
    text = f"$ gdb -p 77 -batch -ex 'thread apply all bt'\nThread 1 (Thread 0x7f1 (LWP 77) \"python\"):\n{NATIVE}"
    assert mains(read((stack(71) + text).encode(), "stacks.txt"), "thread") == [(71,), (77,)]


@pytest.mark.parametrize(
    ("between", "rank"),
    [
        ("and rank 4:", 4),
        ("rank 4 alone is at:", 4),
        ("it differs from rank 4:", None),
        ("ranks 4 and 5 are here:", None),
        ("local rank 4:", None),
        ("local_rank=4", None),
        ("rank 4 and rank 5", None),
        ("rank 0..2 and 4..6:", None),
        ("and for the 31 other ranks:", None),
        ("5 processes in:", None),
        ("其他 rank 的堆栈（以 rank 4 为例）：", None),
        ("и ранг 4, не как rank 7:", None),
        ("the other thread:", 7),
        ("step 4 of 9 took long:", 7),
        ("ten minutes later:", 7),
        ("[rank4]: Traceback of another try", 7),
    ],
)
def test_what_is_said_between_two_stacks(between: str, rank: int | None) -> None:
    found = read(f"rank 7:\n```\n{stack(71)}```\n{between}\n```\n{stack(72, READS)}```\n".encode(), "stacks.txt")
    assert mains(found, "pid", "rank") == [(71, 7), (72, rank)]
