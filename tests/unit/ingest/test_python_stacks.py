from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.ingest.reading import Result, read, sample

PROCESS = "/usr/lib/python3.11/multiprocessing/process.py"
WORKER = "/opt/venv/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py"
SPAWN = "/opt/venv/lib/python3.11/site-packages/torch/multiprocessing/spawn.py"


def thread(*frames: tuple[str, str], **values: Any) -> dict[str, Any]:
    base = {"pid": 7, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 7, "active": False, "owns_gil": False}
    listed = [{"name": name, "filename": file, "line": 3, "locals": None} for name, file in frames]
    return base | {"frames": listed, "process_info": None} | values


def dump(*threads: dict[str, Any], **known: Any) -> Result:
    return read(json.dumps(threads).encode(), "rank1.json", **known)


def test_a_rank_that_waits_for_data() -> None:
    result = sample("python_stacks/rank1.0.json", sample=2, captured_ns=5)
    main = result.row("stacks", is_main=True)
    assert (main["pid"], main["thread"], main["locator"], main["thread_name"]) == (27835, 27835, "thread=27835", "MainThread")
    assert (main["is_child"], main["owns_gil"], main["sample"], main["time_ns"]) == (False, False, 2, 5)
    stack = result.stack(main["call_path"])
    assert stack[0][0] == "_PollLikeSelector.select"
    assert stack[-2:] == [("main", "/srv/job/train.py", 39), ("<module>", "/srv/job/train.py", 44)]
    assert len(result.rows("stacks")) == 2
    assert result.problems == []


def test_its_forked_worker_is_a_child_by_its_stack_and_keeps_the_frames_of_its_parent() -> None:
    result = sample("python_stacks/rank1.child27945.0.json")
    main = result.row("stacks", is_main=True)
    assert main["is_child"] is True
    names = [name for name, _, _ in result.stack(main["call_path"])]
    assert names[0] == "Shards.read_shard"
    assert "_worker_loop" in names
    assert names[-1] == "<module>"


@pytest.mark.parametrize(
    ("frames", "is_child"),
    [
        ([("step", "/srv/job/train.py"), ("<module>", "/srv/job/train.py")], False),
        ([("fetch", "/srv/x.py"), ("_worker_loop", WORKER), ("BaseProcess._bootstrap", PROCESS)], True),
        ([("step", "/srv/job/train.py"), ("_wrap", SPAWN), ("_bootstrap", PROCESS)], False),
        ([("write", "/srv/job/save.py"), ("BaseProcess._bootstrap", PROCESS), ("<module>", "/srv/job/train.py")], None),
        ([("_bootstrap", "/usr/lib/python3.11/threading.py")], False),
        ([("main", "multiprocessing/resource_tracker.py"), ("<module>", "<string>")], True),
        ([("main", "/srv/job/resource_tracker.py"), ("<module>", "/srv/job/resource_tracker.py")], False),
        ([("BaseManager._run_server", "multiprocessing/managers.py"), ("BaseProcess._bootstrap", PROCESS)], True),
        ([("main", "multiprocessing/forkserver.py"), ("<module>", "<string>")], True),
        ([("step", "/srv/x.py"), ("_bootstrap", PROCESS), ("main", "multiprocessing/forkserver.py")], None),
    ],
)
def test_child_or_rank_by_the_stack(frames: list[tuple[str, str]], is_child: bool | None) -> None:
    (row,) = dump(thread(*frames)).rows("stacks")
    assert row["is_child"] is is_child


def test_the_name_of_the_file_goes_before_the_stack() -> None:
    (row,) = dump(thread(("step", "/srv/job/train.py")), is_child=True).rows("stacks")
    assert row["is_child"] is True


def test_in_a_container_the_main_thread_is_shown_by_its_name() -> None:
    result = dump(thread(os_thread_id=1), thread(os_thread_id=9, thread_name="feeder"))
    assert [row["is_main"] for row in result.rows("stacks")] == [True, False]


def test_subprocesses_in_one_dump_are_children_of_their_parent() -> None:
    child = thread(pid=8, os_thread_id=8, process_info={"pid": 8, "command_line": "x", "parent": {"pid": 7}})
    result = dump(thread(), child, thread(pid=8, os_thread_id=10, thread_name="feeder"))
    assert [(row["pid"], row["is_child"], row["is_main"]) for row in result.rows("stacks")] == [
        (7, False, True),
        (8, True, True),
        (8, True, False),
    ]


def test_a_damaged_dump_is_a_problem_with_its_byte() -> None:
    content = json.dumps([thread(("step", "/srv/job/train.py"))]).encode()
    result = read(content[:-20])
    (problem,) = result.problems
    assert problem.fatal
    assert problem.locator is not None and problem.locator.startswith("byte=")


def test_threads_that_are_no_objects_are_left_out_with_a_warning() -> None:
    result = read(json.dumps([thread(), "gone", thread(frames="x", pid="7", owns_gil=3)]).encode())
    assert [(row["pid"], row["owns_gil"], row["call_path"]) for row in result.rows("stacks")] == [
        (7, False, None),
        (7, None, None),
    ]
    assert len(result.problems) == 1


def test_py_spy_text() -> None:
    result = sample("python_stacks_text/rank1.py-spy.txt")
    assert result.ingester == "python_stacks_text"
    main = result.row("stacks", is_main=True)
    assert (main["pid"], main["thread"], main["active"], main["is_child"]) == (27835, 27835, False, False)
    assert result.stack(main["call_path"])[-2:] == [("main", "train.py", 39), ("<module>", "train.py", 44)]
    assert [row["thread_name"] for row in result.rows("stacks")] == ["MainThread", "QueueFeederThread"]


def test_py_spy_text_with_a_holder_of_the_interpreter_lock() -> None:
    lines = (
        "Process 5: python train.py",
        'Thread 0x7F01 (active+gil): "MainThread"',
        "    step (train.py:9)",
        "    native (x.so)",
    )
    (row,) = read("\n".join(lines).encode()).rows("stacks")
    assert (row["thread"], row["active"], row["owns_gil"], row["is_main"], row["pid"]) == (None, True, True, True, 5)


def test_faulthandler_text() -> None:
    result = sample("python_stacks_text/rank1.faulthandler.txt", pid=4)
    main = result.row("stacks", is_main=True)
    assert (main["locator"], main["thread"], main["pid"], main["owns_gil"]) == ("line=7", None, 4, None)
    assert result.stack(main["call_path"]) == [("load_batch", "/srv/job/faults.py", 5), ("<module>", "/srv/job/faults.py", 7)]


def test_a_dated_dump_of_a_short_stack_is_a_dump() -> None:
    """What stands above the threads does not outweigh a stack of two frames: that is what a rank in its own code has."""
    text = """Sun Nov 22 12:49:18 UTC 2026
Process 412: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 412 (active): "MainThread"
    forward (train.py:29)
    <module> (train.py:65)
"""
    assert read(text.encode(), "rank3.txt").rows("stacks")


BACKTRACE = (
    "(gdb) bt\n#0  0x00007f0f8e2a7a3d in __recv_nocancel () from /lib64/libpthread.so.0\n"
    "#1  0x00007f0f5d1a1b2c in ncclCommInitRank () from /usr/lib/libnccl.so.2\n#2  0x0000000000401136 in main ()\n"
)


def test_what_gdb_prints_of_one_thread_needs_no_header() -> None:
    found = read(BACKTRACE.encode() * 2, "rank3.gdb.txt")
    assert found.problems == [] and [row["is_main"] for row in found.rows("stacks")] == [True, True]
    assert [row["sample"] for row in found.rows("stacks")] == [0, 1]
    names = [name for name, _, _ in found.stack(found.rows("stacks")[0]["call_path"])]
    assert names == ["__recv_nocancel", "ncclCommInitRank", "main"]
