from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from forensics.bundle.layout import Status
from forensics.collect.collectors.proc_tasks import collect_tasks
from forensics.collect.collectors.py_spy import collect_stacks
from forensics.collect.processes import ProcFs
from forensics.collect.record import Run
from forensics.collect.target import Context, Target
from tests.unit.collect.fake_proc import FakeProc

RANK = Target(3, "alive", 100, 100, 3)
Program = Callable[[str], Context]


@pytest.fixture
def program(context: Context, tmp_path: Path) -> Program:
    """A py-spy that is a shell script; `$5` and `$6` of its arguments are `--pid` and the process."""

    def write(script: str) -> Context:
        path = tmp_path / "py-spy"
        path.write_text(f'#!/bin/sh\npid="$5"\n{script}\n')
        path.chmod(0o755)
        return replace(context, py_spy=str(path))

    return write


def by_pid(runs: list[Run]) -> dict[int | None, tuple[Status, str | None]]:
    return {run.pid: (run.status, run.path) for run in runs}


def test_the_rank_and_its_python_children_are_sampled(program: Program, proc: FakeProc) -> None:
    proc.add(100)
    proc.add(101, 100)
    proc.add(102, 101)
    proc.add(103, 100, exe="/usr/bin/nvcc", cmdline=("nvcc",))
    context = program('echo "[{\\"pid\\": $pid}]"')
    runs = list(collect_stacks(context, RANK, 1))
    assert by_pid(runs) == {
        100: (Status.OK, "ranks/3/stacks/1.json"),
        101: (Status.OK, "ranks/3/stacks/child-101.1.json"),
        102: (Status.OK, "ranks/3/stacks/child-102.1.json"),
    }
    assert json.loads((context.staging.root / "ranks/3/stacks/child-102.1.json").read_bytes()) == [{"pid": 102}]
    assert runs[0].argv[1:] == ("dump", "--json", "--nonblocking", "--pid", "100")


@pytest.mark.parametrize(
    ("script", "status", "words"),
    [
        ("echo 'Error: Operation not permitted (os error 1)' >&2; exit 1", Status.PERMISSION, "not allowed to read the memory"),
        ("echo 'Error: Failed to find python version from target process' >&2; exit 1", Status.UNSUPPORTED, "as Python"),
        ("echo 'Error: Failed to copy frame' >&2; exit 1", Status.PARTIAL, "Failed to copy frame"),
        ("echo '[{'", Status.PARTIAL, "exit code 0"),
    ],
)
def test_why_a_stack_could_not_be_read(program: Program, proc: FakeProc, script: str, status: Status, words: str) -> None:
    proc.add(100)
    (run,) = collect_stacks(program(script), RANK, 0)
    assert (run.status, run.path) == (status, None)
    assert words in str(run.reason)


def test_a_stack_that_failed_once_is_tried_again(program: Program, proc: FakeProc, tmp_path: Path) -> None:
    proc.add(100)
    context = program(f"test -e {tmp_path}/tried || {{ touch {tmp_path}/tried; exit 1; }}\necho '[]'")
    (run,) = collect_stacks(context, RANK, 0)
    assert run.status is Status.OK


def test_a_py_spy_that_hangs_on_one_process_does_not_cost_the_others(program: Program, proc: FakeProc) -> None:
    proc.add(100, state="D")
    proc.add(101, 100)
    context = program('test "$pid" = 100 && exec sleep 60\necho "[]"')
    context = replace(context, settings=replace(context.settings, stack_s=0.3))
    runs = list(collect_stacks(context, RANK, 0))
    assert {run.pid: run.status for run in runs} == {100: Status.TIMEOUT, 101: Status.OK}
    assert "(state D)" in str(next(run.reason for run in runs if run.pid == 100))


def test_a_missing_py_spy_is_named_with_what_to_install(context: Context, proc: FakeProc) -> None:
    proc.add(100)
    (run,) = collect_stacks(context, RANK, 0)
    assert run.status is Status.NOT_FOUND
    assert "pip install 'forensics[collect]'" in str(run.reason)


def test_more_children_than_the_limit_are_cut_and_said(program: Program, proc: FakeProc) -> None:
    proc.add(100)
    for pid in range(101, 106):
        proc.add(pid, 100)
    context = program("echo '[]'")
    context = replace(context, settings=replace(context.settings, children=2))
    stacks, tasks = list(collect_stacks(context, RANK, 0)), list(collect_tasks(context, RANK, 0))
    assert sorted(run.pid or 0 for run in stacks) == [0, 100, 101, 102]
    assert "3 child processes beyond the first 2" in str(stacks[-1].reason)
    assert tasks[-1].status is Status.PARTIAL
    assert "3 child processes beyond the first 2" in str(tasks[-1].reason)


def test_the_children_of_a_dead_rank_are_sampled(program: Program, proc: FakeProc) -> None:
    proc.add(500, 1)
    dead = Target(3, "absent", extra=(500,))
    runs = list(collect_stacks(program("echo '[]'"), dead, 0))
    assert by_pid(runs) == {None: (Status.NOT_FOUND, None), 500: (Status.OK, "ranks/3/stacks/child-500.0.json")}


def last(context: Context, target: Target = RANK) -> tuple[Run, dict[str, object]]:
    *_, run = collect_tasks(context, target, 2)
    return run, json.loads((context.staging.root / str(run.path)).read_bytes()) if run.path else {}


def test_threads_of_the_rank_and_its_children(context: Context, proc: FakeProc) -> None:
    proc.add(100, threads=(105,), state="D")
    proc.add(101, 100, state="T")
    (proc.root / "100/io").write_text("rchar: 5\nwchar: 70000\nsyscr: 1\n")
    run, document = last(context)
    assert (run.status, run.path, document["schema"], document["rank"]) == (
        Status.OK,
        "ranks/3/proc/2.json",
        "forensics.proc/1",
        3,
    )
    processes = document["processes"]
    assert isinstance(processes, list)
    assert [(one["pid"], one["is_child"], len(one["threads"])) for one in processes] == [(100, False, 2), (101, True, 1)]
    assert [one["written_bytes"] for one in processes] == [70_000, None]
    assert processes[0]["threads"][0] == {
        "tid": 100,
        "name": "python",
        "state": "D",
        "wchan": "futex_do_wait",
        "syscall": "202 0x7f",
        "stack": "[<0>] futex_wait+0x1\n[<0>] do_syscall_64+0x2",
        "utime_ticks": 7,
        "stime_ticks": 3,
        "voluntary_switches": 5,
        "involuntary_switches": 2,
        "tracer_pid": 0,
        "signals_caught": None,
        "waits_on": None,
    }


class Restricted(ProcFs):
    """A kernel that shows kernel stacks to root only."""

    def text(self, pid: int, name: str) -> str:
        if name.endswith("stack"):
            raise PermissionError(13, "Permission denied")
        return super().text(pid, name)


def test_what_the_kernel_hides_is_null_and_said(context: Context, proc: FakeProc) -> None:
    proc.add(100)
    (proc.root / "100/task/100/wchan").write_text("0")
    run, document = last(replace(context, procfs=Restricted(proc.root)))
    processes = document["processes"]
    assert isinstance(processes, list)
    thread = processes[0]["threads"][0]
    assert (thread["wchan"], thread["stack"], thread["syscall"]) == (None, None, "202 0x7f")
    assert processes[0]["errors"] == ["stack: permission denied"]
    assert (run.status, run.reason) == (Status.PARTIAL, "stack: permission denied (kernel stacks are shown to root only)")


def test_states_are_on_disk_before_anything_that_may_block_is_read(context: Context, proc: FakeProc) -> None:
    proc.add(100)
    first = next(iter(collect_tasks(context, RANK, 0)))
    assert first.provisional
    assert b"futex_do_wait" in (context.staging.root / str(first.path)).read_bytes()


def test_a_later_process_with_the_same_pid_is_not_the_rank(program: Program, proc: FakeProc) -> None:
    proc.add(100, start=5000)
    context = program("echo '[]'")
    earlier = replace(RANK, start_ticks=1000)
    (run,) = collect_stacks(context, earlier, 0)
    assert (run.status, run.reason) == (Status.NOT_FOUND, "process 100 ended during the collection")
    run, _ = last(context, earlier)
    assert (run.status, run.reason) == (Status.NOT_FOUND, "process 100 ended during the collection")


def test_a_process_that_is_gone(context: Context) -> None:
    run, _ = last(context)
    assert (run.status, run.reason) == (Status.NOT_FOUND, "process 100 ended during the collection")
    run, _ = last(context, Target(3, "absent"))
    assert run.reason == "the rank has no process on this host"
