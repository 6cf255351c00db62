from __future__ import annotations

import json
from time import process_time

import pytest

from forensics.ingest.interface import Identity
from tests.unit.ingest.reading import read, sample


def test_threads_of_a_rank_and_its_child() -> None:
    result = sample("process_facts/0.json", sample=0)
    assert result.identities == [Identity(rank=1)]
    processes = result.rows("processes")
    assert [row["is_child"] for row in processes] == [False, False, False, True, True, True]
    rank = result.row("processes", thread=27835)
    assert (rank["pid"], rank["name"], rank["state"]) == (27835, "python", "S")
    assert rank["wchan"] == "poll_schedule_timeout.constprop.0"
    assert rank["kernel_stack"].startswith("[<0>] poll_schedule_timeout")
    assert (rank["cpu_ticks"], rank["switches"], rank["tracer"]) == (72 + 13, 38 + 506, 0)
    child = result.row("processes", is_child=True, thread=27945)
    assert child["wchan"] == "anon_pipe_read"


def test_what_the_kernel_does_not_show_is_null_and_errors_are_warnings() -> None:
    thread = {"tid": 3, "name": "python", "state": "D", "wchan": "0", "utime_ticks": 1}
    process = {"pid": 3, "is_child": False, "threads": [thread, 5], "errors": ["stack: permission denied"]}
    result = read(json.dumps({"schema": "forensics.proc/1", "rank": None, "processes": [process, None]}).encode())
    (row,) = result.rows("processes")
    assert (row["wchan"], row["cpu_ticks"], row["kernel_stack"], row["time_ns"]) == (None, None, None, None)
    assert [(p.message, p.locator) for p in result.problems] == [("collector: stack: permission denied", "pid=3")]
    assert result.identities == []


@pytest.mark.parametrize(
    ("syscall", "deadline"),
    [
        ("219 0x555b1d064a98 0x189 0x0 0x7ffc37809aa0 0x0 0xffffffff 0x7ffc37809950 0x7fbb0c0a3f16", True),
        ("202 0x55ef3478f270 0x189 0x0 0x0 0x0 0xffffffff 0x7ffff486fc40 0x7fe8296a3f16", False),
        ("219 0x55bfb56fb910 0x89 0x0 0x7ffefb444b00 0x0 0xffffffff 0x7ffefb444a50 0x7f0ed22a3f16", None),
        ("202 0x55ef3478f270 0x181 0x0 0x7ffc37809aa0 0x0 0xffffffff 0x7ffff486fc40 0x7fe8296a3f16", None),
        ("running", None),
        ("202 0x1 rubbish 0x0 0x1 0x0 0x0", None),
        (None, None),
    ],
    ids=["until a date", "without a limit", "for a time", "wakes", "runs", "rubbish", "not shown"],
)
def test_whether_a_futex_has_a_date_is_read_off_the_call(syscall: str | None, deadline: bool | None) -> None:
    thread = {"tid": 3, "name": "python", "wchan": "futex_do_wait", "syscall": syscall}
    process = {"pid": 3, "is_child": False, "threads": [thread], "errors": []}
    (row,) = read(json.dumps({"schema": "forensics.proc/1", "rank": 0, "processes": [process]}).encode()).rows("processes")
    assert row["deadline"] is deadline


def test_a_handler_for_a_timer_is_read_off_the_mask_of_signals() -> None:
    masks = {"0000000100001002": False, "0000000100003002": True, "0000000004000000": True, "none": None, None: None}
    threads = [{"tid": 3 + number, "name": "python", "signals_caught": mask} for number, mask in enumerate(masks)]
    process = {"pid": 3, "is_child": False, "threads": threads, "errors": []}
    result = read(json.dumps({"schema": "forensics.proc/1", "rank": 0, "processes": [process]}).encode())
    assert [row["timed"] for row in result.rows("processes")] == list(masks.values())


def test_a_line_of_many_commands_takes_no_time() -> None:
    began = process_time()
    result = read(("  PID STAT CMD\n   88 Sl   python train.py\n" + "ps -" * 16_000 + "\n").encode(), "ps.txt")
    assert [row["pid"] for row in result.rows("processes")] == [88] and process_time() - began < 2
