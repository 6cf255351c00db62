"""Logs with something else beside them: members that logs alone do not tell, ports, nodes and workers that were outlived."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from forensics.model import Cause, Verdict
from tests.recordings.verdicts import named, pasted, verdict_of


def timed_out(rank: int, number: int = 17) -> str:
    said = f"WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, NumelIn=2, NumelOut=2, Timeout(ms)=600000) ran for 600028 milliseconds"
    return (
        f"[rank{rank}]:[E1004 03:01:36.7 P.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: "
        f"{said}\n[rank{rank}]:[E1004 03:01:36.8 P.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Exception "
        f"detected by watchdog at work: {number}, last enqueued NCCL work: {number}, last completed NCCL work: {number - 1}.\n"
    )


def judged(folder: Path, files: Mapping[str, str]) -> Verdict:
    for name, text in files.items():
        (folder / name).write_text(text)
    return verdict_of(folder)


EXIT = (
    'Process 1931: python train.py\nThread 1931 (idle): "MainThread"\n    _wait_for_tstate_lock (threading.py:1116)\n'
    "    join (threading.py:1096)\n    _shutdown (threading.py:1566)\n"
)
RAISED = (
    '[rank3]: Traceback (most recent call last):\n[rank3]:   File "/w/train.py", line 21, in <module>\n[rank3]:     main()\n'
    "[rank3]: soundfile.LibsndfileError: Error opening '/data/a.wav': Format not recognised.\n"
)


def test_a_rank_that_left_a_stack_is_a_member_of_the_group_of_all(tmp_path: Path) -> None:
    files = {f"rank{rank}.log": timed_out(rank) for rank in range(3)}
    verdict = judged(tmp_path, {**files, "rank3.log": RAISED, "pyspy_rank3.txt": EXIT})
    assert named(verdict) == {3} and verdict.suspects[0].cause is Cause.PYTHON_EXCEPTION


@pytest.mark.parametrize(
    ("silent", "expected"),
    [((41,), {41}), ((41, 42, 43, 44, 45, 46, 47, 48, 49), set()), ((63,), set())],
)
def test_one_of_many_ranks_in_one_file_that_did_not_give_up(
    tmp_path: Path, silent: tuple[int, ...], expected: set[int]
) -> None:
    """Of a rank beyond the last one that is heard nothing shows that it exists."""
    assert named(pasted(tmp_path, "".join(timed_out(rank) for rank in range(64) if rank not in silent))) == expected


def test_ranks_without_a_file_are_no_gap(tmp_path: Path) -> None:
    files = {f"rank{rank}.log": timed_out(rank) for rank in range(16) if rank != 5}
    assert not named(judged(tmp_path, files))


PORT = "{host}:77:99 [5] transport/net_ib.cc:89 NCCL WARN NET/IB : mlx5_9:1 Got async event : port error\n"
LOST = (
    "{host}:77:98 [5] net_ib.cc:1349 NCCL WARN NET/IB : Got completion from peer {peer}<50122> with error 12, opcode 0, "
    "len 0, vendor err 129\n"
)
START = (
    "{host}:77:77 [5] NCCL INFO Bootstrap : Using bond0:{address}<0>\n"
    "{host}:77:90 [5] NCCL INFO comm 0x55bc rank {rank} nranks 3 cudaDev 5 busId c3000 commId 0x4ccf - Init COMPLETE\n"
)
HOSTS = ("n-0", "n-1", "n-2")


def nccl(place: int, *, port: bool = False, lost: int | None = None) -> str:
    text = START.format(host=HOSTS[place], address=f"10.0.0.{place}", rank=place)
    text += PORT.format(host=HOSTS[place]) if port else ""
    return text + (LOST.format(host=HOSTS[place], peer=f"10.0.0.{lost}") if lost is not None else "")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ((nccl(0, lost=1), nccl(1, port=True, lost=2), nccl(2)), {1}),
        ((nccl(0, lost=1), nccl(1, lost=0), nccl(2)), set()),
        ((nccl(0, lost=1, port=True), nccl(1, port=True, lost=2), nccl(2)), set()),
        ((nccl(0, lost=2), nccl(1, port=True), nccl(2, lost=0)), set()),
    ],
    ids=["own port", "each lost the other", "ports of two hosts", "lost elsewhere"],
)
def test_the_host_whose_own_port_failed(tmp_path: Path, files: tuple[str, ...], expected: set[int]) -> None:
    verdict = judged(tmp_path, {f"nccl.n-{place}.77": text for place, text in enumerate(files)})
    assert named(verdict) == expected
    assert not expected or verdict.suspects[0].cause is Cause.NETWORK_DOWN


ELASTIC = (
    "{node}: INFO:dynamic_rendezvous:The node 'gpu-d{node}_2776{node}_0' has joined "
    "round 0 of the rendezvous '5' as rank {node} in a world of size 3.\n{node}:   global_ranks=[{ranks}]\n"
)
NODE_FAILED = (
    "slurmstepd: error: *** STEP 5.0 ON gpu-d0 CANCELLED AT 2022-05-04T04:19:52 DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***\n"
    "srun: error: Node failure on gpu-d{node}\n"
)


@pytest.mark.parametrize(("node", "expected"), [(1, {2, 3}), (7, set())])
def test_the_ranks_of_a_node_that_was_lost(tmp_path: Path, node: int, expected: set[int]) -> None:
    text = "".join(ELASTIC.format(node=n, ranks=f"{2 * n}, {2 * n + 1}") for n in (2, 0, 1))
    assert named(pasted(tmp_path, text + NODE_FAILED.format(node=node))) == expected


SRUN = (
    "srun: error: Node failure on gpu-b14\n"
    "slurmstepd: error: *** STEP 8.0 ON gpu-b12 CANCELLED AT 2026-02-11T03:44:19 DUE TO NODE FAILURE ***\n"
)


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (("gpu-b12: tasks 0-3", "gpu-b15: tasks 8-11"), {4, 5, 6, 7}),
        (("gpu-b12: tasks 0-1,3", "gpu-b12: task 2", "gpu-b15: tasks 8-11"), {4, 5, 6, 7}),
        (("gpu-b15: tasks 4-7",), {0, 1, 2, 3}),
        (("gpu-b12: tasks 0-3", "gpu-b13: tasks 4-7"), set()),
        (("gpu-b12: task 0", "gpu-b15: task 2"), set()),
        (("gpu-b12: tasks 0-3", "gpu-b15: tasks 8-10"), set()),
        (("gpu-b12: tasks 0-3", "gpu-b15: tasks 12-15"), set()),
        (("gpu-b12: tasks 0-3", "gpu-b14: tasks 4-7", "gpu-b15: tasks 8-11"), set()),
    ],
)
def test_tasks_that_lists_of_the_other_nodes_leave_out(tmp_path: Path, ended: tuple[str, ...], expected: set[int]) -> None:
    lists = "".join(f"srun: error: {tasks}: Terminated\n" for tasks in ended)
    assert named(pasted(tmp_path, "0: step 4 loss 2.1\n" + SRUN + lists)) == expected


def worker(number: int, text: str) -> str:
    return f"vllm-1  | (VllmWorker TP{number} pid=42{number}) INFO 08-25 12:00:19 [multiproc_executor.py:520] {text}\n"


DIED = "vllm-1  | (EngineCore_0 pid=288) ERROR 08-25 12:00:19 [executor.py:146] Worker proc VllmWorker-2 died unexpectedly.\n"
FOLLOWED = "Parent process exited, terminating worker"


@pytest.mark.parametrize(("others", "expected"), [((0, 1, 3), {2}), ((0, 1, 2, 3), set()), ((), set()), ((0,), set())])
def test_the_worker_that_all_others_outlived(tmp_path: Path, others: tuple[int, ...], expected: set[int]) -> None:
    start = "".join(worker(number, "Model loading took 41.72 GiB") for number in range(4))
    assert named(pasted(tmp_path, start + DIED + "".join(worker(number, FOLLOWED) for number in others))) == expected


def test_an_error_of_a_gpu_in_a_journal_among_the_lines_of_all_nodes(tmp_path: Path) -> None:
    start = "".join(
        f"n-{rank // 2}: n-{rank // 2}:{970 + rank}:1240 [4] NCCL INFO comm 0x5511 rank {rank} nranks 4 cudaDev {rank % 2} "
        f"busId {rank % 2}b000 commId 0x29d7 - Init COMPLETE\n"
        for rank in range(4)
    )
    xid = (
        "n-1: Aug 14 02:10:07 n-1 kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=973, name=python3, GPU has fallen off the bus.\n"
    )
    assert named(pasted(tmp_path, start + xid + timed_out(0) + timed_out(1))) == {3}


def test_the_address_of_a_gpu_in_a_kernel_log_beside_the_logs_of_nccl(tmp_path: Path) -> None:
    files = {
        f"nccl.n-{rank // 2}.{970 + rank}": f"n-{rank // 2}:{970 + rank}:1240 [4] NCCL INFO comm 0x5511 rank {rank} nranks 4 "
        f"cudaDev {rank % 2} busId {rank % 2}b000 commId 0x29d7 - Init COMPLETE\n"
        for rank in range(4)
    }
    files |= {
        "n-1.dmesg": "[Thu Nov 21 02:57:40 2024] NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, lost.\n"
    }
    verdict = judged(tmp_path, {**files, "train.log": timed_out(0) + timed_out(1) + timed_out(2)})
    assert named(verdict) == {3} and verdict.suspects[0].cause is Cause.GPU_FAULT


MISFIT = (
    "[rank{rank}]: Traceback (most recent call last):\n"
    '[rank{rank}]:   File "/w/t.py", line 9, in <module>\n[rank{rank}]: {error}\n'
)
TABLE = (
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n{line}\nt.py FAILED\n{line}\nFailures:\n"
    "  <NO_OTHER_FAILURES>\n{line}\nRoot Cause (first observed failure):\n[0]:\n  time      : 2025-03-21_09:14:2{second}\n"
    "  host      : n-{node}\n  rank      : {rank} (local_rank: 1)\n  exitcode  : 1 (pid: 64112)\n  error_file: <N/A>\n"
)


@pytest.mark.parametrize(
    ("others", "expected"),
    [("RuntimeError: size mismatch for w.1", set()), ("torch.distributed.DistBackendError: NCCL error", {3})],
)
def test_an_error_that_all_ranks_raise_is_nobodys_whoever_was_first(tmp_path: Path, others: str, expected: set[int]) -> None:
    own = "RuntimeError: size mismatch for w.3"
    text = "".join(MISFIT.format(rank=rank, error=own if rank == 3 else others) for rank in (1, 0, 3, 2))
    text += "".join(TABLE.format(line="=" * 60, second=node, node=1 - node, rank=(3, 1)[node]) for node in range(2))
    assert named(pasted(tmp_path, text)) == expected
