"""Stacks that people save as text: gdb, cuda-gdb and pystack."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.ingest import choose
from forensics.rules.diagnosis import diagnose
from tests.unit.ingest.reading import SAMPLES, read, sample


def test_stacks_of_gdb() -> None:
    found = sample("python_stacks_text/handmade_rank2.gdb.txt")
    main = found.row("stacks", is_main=True)
    assert (main["pid"], main["thread"], main["is_child"]) == (4242, 4242, False)
    assert found.stack(main["call_path"])[:2] == [("read", "libc.so.6", None), ("_Py_read", "fileutils.c", 1777)]
    other = found.row("stacks", is_main=False)
    assert found.stack(other["call_path"])[-1][0] == "c10d::ProcessGroupNCCL::watchdogHandler"


def test_kernels_of_cuda_gdb() -> None:
    found = sample("python_stacks_text/handmade_rank3.cuda-gdb.txt")
    kernel = found.row("device_kernels")
    assert (kernel["device"], kernel["grid"], kernel["communicates"]) == (3, 90417, True)
    assert kernel["kernel"].startswith("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(")
    assert {row["pid"] for row in found.rows("stacks")} == {4103}


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        (
            "=== rank 5 ===\n  Kernel Parent Dev Grid Status   SMs Mask GridDim  BlockDim      Name Args\n"
            "*      1      -   0    2 Active 0x00ffffff (240,1,1) (128,1,1) acos_main parms=...\n",
            "acos_main parms=...",
        ),
        (
            "=== rank 5 ===\n[Switching focus to CUDA kernel 0, grid 11534, block (0,0,0), thread (0,0,0), device 1, "
            "sm 0, warp 0, lane 0]\n0x00007f2b in ncclKernel_AllGather_RING_LL_Sum_int8_t<<<(2,1,1),(512,1,1)>>> ()\n",
            "ncclKernel_AllGather_RING_LL_Sum_int8_t",
        ),
    ],
)
def test_other_forms_of_kernels(text: str, kernel: str) -> None:
    row = read(text.encode()).row("device_kernels")
    assert (row["rank"], row["kernel"]) == (5, kernel)


def test_a_table_without_kernels_is_said_to_be_unreadable() -> None:
    found = read(b"  Kernel Parent Dev Grid Status SMs Mask\n" + b"\xff\x1b[2J" * 9)
    assert not found.rows("device_kernels") and found.problems


PY_BT = (
    "(gdb) attach 4242\n[Thread debugging using libthread_db enabled]\n(gdb) py-bt\nTraceback (most recent call first):\n"
    "  <built-in method read of _io.FileIO object at remote 0x7f31c2d0>\n"
    '  File "/job/shards.py", line 44, in __getitem__\n    return self.open(index)\n'
    '  File "/job/train.py", line 310, in <module>\n    main()\n'
)
MIXED = (
    "#0  0x00007f5a1c36a0dc in read () from /lib/libc.so.6\n"
    "#1  0x0000555f in _PyEval_EvalFrameDefault (tstate=0x1, f=Frame 0x5580, for file /job/shards.py, line 44, in __getitem__ "
    "(self=<Shards(files=['a', 'b']) at remote 0x7f31>, index=9), throwflag=0) at Python/ceval.c:741\n"
)
FULL = (
    "#3 Frame 0x5580, for file /job/shards.py, line 44, in __getitem__ (self=<Shards at remote 0x7f31>, index=9)\n"
    "    return self.open(index)\n#9 Frame 0x5570, for file /job/train.py, line 310, in <module> ()\n    main()\n"
)


def test_python_frames_that_gdb_prints_of_one_thread() -> None:
    found = read(PY_BT.encode(), "rank6.txt")
    thread = found.row("stacks")
    assert (found.ingester, thread["pid"], found.problems) == ("python_stacks_text", 4242, [])
    assert found.stack(thread["call_path"]) == [("__getitem__", "/job/shards.py", 44), ("<module>", "/job/train.py", 310)]


def test_python_frames_that_gdb_prints_of_all_threads() -> None:
    of_one = PY_BT[PY_BT.index("Traceback") :]
    text = "".join(f'Thread {n} (Thread 0x7f5a (LWP {4240 + n}) "python3"):\n{of_one}' for n in (2, 1))
    stacks = read(text.encode(), "rank6.txt").rows("stacks")
    assert [(row["thread"], row["is_main"], row["sample"]) for row in stacks] == [(4242, False, 0), (4241, True, 0)]


def test_python_frames_within_those_of_gdb() -> None:
    found = read(MIXED.encode(), "rank6.txt")
    frames = found.stack(found.row("stacks")["call_path"])
    assert frames == [("read", "libc.so.6", None), ("__getitem__", "/job/shards.py", 44)]
    text = f'Thread 1 (Thread 0x7f5a (LWP 4241) "python3"):\n{FULL}'
    found = read(text.encode(), "rank6.txt")
    assert [name for name, _, _ in found.stack(found.row("stacks")["call_path"])] == ["__getitem__", "<module>"]


def test_what_python_prints_of_an_exception_is_no_dump() -> None:
    text = PY_BT.replace("most recent call first", "most recent call last")
    found = choose(text.encode(), "rank6.txt")
    assert found is None or found.name != "python_stacks_text"


def test_gdb_tells_who_is_elsewhere_and_accuses_nobody_where_all_wait(tmp_path: Path) -> None:
    text = (SAMPLES / "python_stacks_text" / "handmade_rank2.gdb.txt").read_text()
    waiting = "#0  0x1 in pthread_cond_timedwait () from /lib/libc.so.6\n#1  0x2 in c10d::ProcessGroupNCCL::WorkNCCL::"
    waiting += "synchronizeInternal(std::chrono::duration<long>) () from /opt/libtorch_cuda.so\n"
    for rank in range(4):
        own = text.replace("4242", str(4240 + rank))
        (tmp_path / f"rank{rank}.txt").write_text(own[: own.index("#0  0x00007f5a1c36a0dc")] + waiting)
    assert diagnose(open_case([tmp_path])).suspects == ()
    (tmp_path / "rank2.txt").write_text(text)
    assert [suspect.ranks for suspect in diagnose(open_case([tmp_path])).suspects] == [(2,)]


PYSTACK = """--- 40510
Traceback for thread 40599 (pt_main_thread) [] (most recent call last):
    (Python) File "/opt/py/threading.py", line 1032, in _bootstrap
        self._bootstrap_inner()

Traceback for thread 40510 (python) [Has the GIL] (most recent call last):
    (Python) File "/srv/exp/train.py", line 302, in <module>
        main()
    (C) File "???", line 0, in ncclCommInitRankConfig (libnccl.so.2)
"""


def test_stacks_of_pystack() -> None:
    found = read(PYSTACK.encode())
    main = found.row("stacks", is_main=True)
    assert (main["pid"], main["thread"], main["owns_gil"]) == (40510, 40510, True)
    assert found.stack(main["call_path"]) == [
        ("ncclCommInitRankConfig", "libnccl.so.2", None),
        ("<module>", "/srv/exp/train.py", 302),
    ]
