"""Ranks that no line states: by processes, devices, places, nodes and lists that leave one out."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Granularity, Outcome
from tests.recordings.verdicts import named, pasted, stated

STAMP = "[2025-02-11 08:30:{0:02},000] [INFO] [launch.py:9:main] "


def spawned(*pids: int, node: int = 0, nodes: int = 1) -> str:
    start = f"{STAMP.format(1)}nnodes={nodes}, num_local_procs={len(pids)}, node_rank={node}\n"
    commands = "".join(
        f"{STAMP.format(2)}process {pid} spawned with command: ['/usr/bin/python', 'a.py', '--local_rank={local}', '-x']\n"
        for local, pid in enumerate(pids)
    )
    return start + commands


def killed(pid: int) -> str:
    stamp = "[Tue Feb 11 08:41:00 2025] "
    return (
        f"{stamp}oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),global_oom,task=python,pid={pid},uid=7\n"
        f"{stamp}Out of memory: Killed process {pid} (python) total-vm:9kB, anon-rss:8kB\n"
    )


LAST_COMMAND = STAMP.format(50) + "['/usr/bin/python', '-u', 'a.py', '--local_rank=3', '-x'] exits with return code = -9\n"


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        (spawned(60, 63, 66, 69) + LAST_COMMAND + killed(63), 1),
        (killed(66) + spawned(60, 63, 66, 69) + LAST_COMMAND, 2),
        (spawned(60, 63, 66, 69, node=2, nodes=4) + killed(60), 8),
    ],
    ids=["behind the log", "in front of it", "third node"],
)
def test_the_process_that_the_kernel_killed(tmp_path: Path, text: str, rank: int) -> None:
    verdict = pasted(tmp_path, text)
    assert (named(verdict), verdict.outcome) == ({rank}, Outcome.FAILSTOP)
    assert "OOM killer" in stated(verdict)


@pytest.mark.parametrize(
    "text",
    [
        spawned(60, 63, 66, 69) + LAST_COMMAND,
        spawned(60, 63, 66, 69) + LAST_COMMAND + killed(71),
        spawned(60, 63, node=0, nodes=2) + spawned(60, 63, node=1, nodes=2) + killed(63),
        "[rank2]: a\n" + killed(63),
        LAST_COMMAND + killed(63),
    ],
    ids=["the last command", "a process of somebody else", "one number on two nodes", "no start", "no start but a command"],
)
def test_kills_of_processes_that_are_no_rank(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))


def test_a_kill_pasted_into_the_file_of_a_rank_is_not_laid_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "rank_2.log").write_text(killed(63))
    assert not named(pasted(folder, "[rank0]: a\n"))


def table(*buses: str, header: str = "index, pci.bus_id, serial") -> str:
    return header + "\n" + "".join(f"{index}, 00000000:{bus}:00.0, 7{index}\n" for index, bus in enumerate(buses))


COMMAND = "(torchrun --nnodes 3 --nproc_per_node 4 --node_rank {0} --master_addr a0 train.py)\n"
LOST = "Oct 04 02:51:37 a{0} kernel: NVRM: Xid (PCI:0000:{1}:00): 79, pid='<unknown>', name=<unknown>, GPU is gone.\n"
BUSES = ("19", "3B", "9B", "DB")
WAITED = (
    "[rank{0}]:[E1004 03:01:36.7 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=17, OpType=ALLREDUCE, NumelIn=2, NumelOut=3, Timeout(ms)=600000) ran for 600028 milliseconds\n"
)


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        (COMMAND.format(1) + table(*BUSES) + LOST.format(1, "9b") + WAITED.format(4), 6),
        (COMMAND.format(2) + table(*BUSES) + LOST.format(1, "db"), 11),
        ("$ torchrun --nproc_per_node=4 a.py\n" + table(*BUSES) + LOST.format(1, "3b"), 1),
        (
            "torchrun --nproc_per_node=4 a.py CUDA_VISIBLE_DEVICES=0,1,2,3\n" + table(*BUSES) + LOST.format(1, "19"),
            0,
        ),
    ],
    ids=["second node", "third node", "one node", "all visible"],
)
def test_the_rank_of_a_device_by_a_table_of_its_node(tmp_path: Path, text: str, rank: int) -> None:
    verdict = pasted(tmp_path, text)
    assert (named(verdict), verdict.suspects[0].cause.value) == ({rank}, "gpu_fault")


@pytest.mark.parametrize(
    "text",
    [
        table(*BUSES) + LOST.format(1, "9b"),
        COMMAND.format(1) + LOST.format(1, "9b"),
        COMMAND.format(1) + COMMAND.format(2) + table(*BUSES) + LOST.format(1, "9b"),
        COMMAND.format(1) + table(*BUSES) + LOST.format(1, "9b") + WAITED.format(2),
        COMMAND.format(1) + table(*BUSES) + LOST.format(1, "9b") + LOST.format(2, "9b"),
        COMMAND.format(1) + table(*BUSES, "E1") + LOST.format(1, "9b"),
        COMMAND.format(1) + table(*BUSES) + table(*reversed(BUSES)) + LOST.format(1, "9b"),
        COMMAND.format(1) + "CUDA_VISIBLE_DEVICES=3,2,1,0\n" + table(*BUSES) + LOST.format(1, "9b"),
        COMMAND.format(1) + table(*BUSES) + LOST.format(1, "9b").replace("'<unknown>'", "4711"),
        COMMAND.format(1) + table(*BUSES) + LOST.format(1, "9b").replace(" 79,", " 154,"),
    ],
    ids=[
        "no command",
        "no table",
        "two nodes",
        "a rank of another node",
        "two hosts",
        "more devices than processes",
        "two tables",
        "renumbered",
        "a process that nobody knows",
        "no loss",
    ],
)
def test_devices_whose_rank_no_table_tells(tmp_path: Path, text: str) -> None:
    assert 6 not in named(pasted(tmp_path, text))


def init(host: str, rank: int, bus: str) -> str:
    return (
        f"{host}:{900 + rank}:{900 + rank} [{rank % 2}] NCCL INFO comm 0x{rank + 16:x} rank {rank} nranks 4 "
        f"cudaDev {rank % 2} nvmlDev {rank % 2} busId {bus} commId 0xabc - Init COMPLETE\n"
    )


WIDER = "wider than all others: " * 9 + "\n"
TWO_HOSTS = WIDER + init("a1", 0, "19000") + init("a1", 1, "9b000") + init("a2", 2, "19000") + init("a2", 3, "9b000")


def test_equal_addresses_on_two_hosts_are_distinguished_by_who_wrote_the_line(tmp_path: Path) -> None:
    assert named(pasted(tmp_path, TWO_HOSTS + LOST.format(2, "9b"))) == {3}
    assert not named(pasted(tmp_path, TWO_HOSTS + LOST.format(3, "9b")))


ACTOR = """ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
\tclass_name: create.<locals>.Worker
\tactor_id: 0a1b
\tpid: {pid}
\tname: xK2Worker_{node}:{place}
\tnamespace: 6e
"""
CRASH = (
    "(raylet, ip=10.2.0.7) [2025-05-30 11:29:21,440 E 718 718] logging.cc:474: *** SIGBUS received at time=17486 on cpu 4 ***\n"
)
SETTING = "overrides: ['trainer.n_gpus_per_node=4', 'trainer.nnodes=3']\n"


def test_an_actor_by_its_place_on_its_node(tmp_path: Path) -> None:
    verdict = pasted(tmp_path, SETTING + CRASH + ACTOR.format(pid=718, node=2, place=1))
    assert named(verdict) == {9}
    assert "SIGBUS" in stated(verdict)


@pytest.mark.parametrize(
    "text",
    [
        ACTOR.format(pid=718, node=2, place=1),
        SETTING + ACTOR.format(pid=718, node=2, place=5),
        SETTING + "rollout.n_gpus_per_node=2\n" + ACTOR.format(pid=718, node=2, place=1),
        SETTING + ACTOR.format(pid=718, node=2, place=1).replace("_2:1", "-head"),
        SETTING + CRASH,
    ],
    ids=["no setting", "beyond the node", "two settings", "another name", "a signal alone"],
)
def test_actors_that_tell_no_rank(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))


GPU_HANG = "HW Exception by GPU node-5 (Agent handle: 0x19d0) reason :GPU Hang\n"
ENTRY = (
    "[{0}]:\n  time      : 2025-03-26_03:18:{2}\n  host      : m1\n  rank      : {0} (local_rank: {0})\n"
    "  exitcode  : {1} (pid: 9{0})\n"
)
ROOT = "Root Cause (first observed failure):\n"


QUEUE = (
    ":0:rocdevice.cpp :2984: 5411: [pid:95 tid:0x7f] Callback: Queue 0x7f2 aborting with error : HSA_STATUS_ERROR_EXCEPTION: "
    "An HSAIL operation resulted in a hardware exception. code: 0x1016\n"
)


@pytest.mark.parametrize("said", [GPU_HANG, QUEUE])
def test_the_abort_that_a_device_explains(tmp_path: Path, said: str) -> None:
    verdict = pasted(tmp_path, said + ROOT + ENTRY.format(5, -6, 22))
    assert (named(verdict), verdict.suspects[0].cause.value) == ({5}, "gpu_fault")


@pytest.mark.parametrize(
    "text",
    [
        ROOT + ENTRY.format(5, -6, 22),
        WAITED.format(1) + GPU_HANG + ROOT + ENTRY.format(5, -6, 22),
        GPU_HANG + ENTRY.format(4, -6, 22) + ROOT + ENTRY.format(5, -6, 22),
    ],
    ids=["no device", "after others had given up", "two at once"],
)
def test_aborts_that_no_device_explains(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))


STEP = "error: *** STEP 52.0 ON n1 CANCELLED AT 2026-03-14T21:36:37 DUE TO {0} ***\n"
ENDED = "srun: error: n{0}: tasks {1}: {2}\n"


def ended(first: str, second: str, why: str = "TASK FAILURE", how: str = "Terminated") -> str:
    return STEP.format(why) + ENDED.format(1, first, "Terminated") + ENDED.format(2, second, how)


def test_the_one_task_that_srun_did_not_end(tmp_path: Path) -> None:
    verdict = pasted(tmp_path, ended("0-7", "8-10,12-15"))
    assert (named(verdict), verdict.outcome) == ({11}, Outcome.FAILSTOP)
    assert named(pasted(tmp_path, ended("0-7", "8-10") + ENDED.format(2, "12-15", "Terminated"))) == {11}


@pytest.mark.parametrize(
    "text",
    [
        ended("0-7", "8-10,12-15", why="TIME LIMIT"),
        ended("0-7", "8-10,13-15"),
        ended("0-7", "8-15"),
        ended("0-6", "8-15"),
        ended("0-7", "8-10,12-15", how="Exited with exit code 1"),
        "world_size=32\n" + ended("0-7", "8-10,12-15"),
        ended("1-7", "8-10,12-15"),
        STEP.format("TASK FAILURE").replace("52.0", "52.1") + ended("0-7", "8-10,12-15"),
    ],
    ids=["time limit", "two", "none", "between hosts", "others failed", "others are not listed", "two gaps", "two steps"],
)
def test_lists_of_srun_that_leave_nobody_out(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))


WORKER = "2024-03-07 20:47:{0:02} 10.6.0.{1} [{1}] {2}\n"
CHECK = "2024-03-07 20:47:13.118402: F tensorflow/core/a.cc:45] Check failed: x == y ({0} vs. 1) "
GONE = "2024-03-07 20:47:21.5: E tensorflow/core/b.cc:3] RPC to /job:w/replica:0/task:2 failed: UNAVAILABLE: Socket closed"
STARTED = "".join(WORKER.format(1, worker, "INFO start") + WORKER.format(2, worker, "step 3") for worker in range(4))
STARTED += "".join(WORKER.format(step, 0, f"| epoch 1 | step {step} | loss 7.{step}") for step in range(3, 9))


def test_the_worker_whose_check_failed(tmp_path: Path) -> None:
    text = STARTED + WORKER.format(14, 2, CHECK.format(2)) + WORKER.format(23, 1, GONE) + WORKER.format(24, 3, "Terminated")
    assert named(pasted(tmp_path, text)) == {2}


@pytest.mark.parametrize(
    "text",
    [
        "".join(WORKER.format(14, worker, CHECK.format(2)) for worker in range(4)),
        WORKER.format(14, 2, CHECK.format("UNAVAILABLE: Socket closed")),
        WORKER.format(14, 2, "INFO a.cc:45] no Check failed: all is well"),
    ],
    ids=["all", "of a lost peer", "no error"],
)
def test_checks_that_tell_nobody(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, STARTED + text))


CAME = "# of tasks that reached the barrier: {0}/{1}.\nThe first task at the barrier: /job:j/replica:0/task:2. "
LATE = "Some timed out task names:\n{0}\n\n"


def barrier(came: int, size: int, *late: int) -> str:
    return CAME.format(came, size) + LATE.format("\n".join(f"/job:j/replica:0/task:{task}" for task in late))


def test_the_tasks_that_did_not_reach_a_barrier(tmp_path: Path) -> None:
    verdict = pasted(tmp_path, barrier(7, 8, 5) + barrier(6, 8, 5, 3) + "RPC to /job:j/replica:0/task:1\n")
    assert (named(verdict), verdict.outcome) == ({5}, Outcome.HANG)


@pytest.mark.parametrize(
    "text",
    [barrier(1, 8, 0, 1, 3), barrier(7, 8), barrier(7, 8, 9), CAME.format(7, 8), barrier(1, 8, 0, 1, 3, 4, 5, 6, 7)],
    ids=["a list cut short", "no names", "no such task", "cut", "most"],
)
def test_barriers_that_tell_nobody(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))


def actors(*addresses: str, size: int = 4) -> str:
    return "".join(
        f"(Worker pid={40 + rank}{f', ip={address}' if address else ''}) INFO [a:1] rank {rank} in world size {size} is TP 0\n"
        for rank, address in enumerate(addresses)
    )


DEAD = "(raylet) The node with node id: a418d and address: 10.1.0.{0} and node name: 10.1.0.{0} has been marked dead because\n"
ON_TWO = actors("", "", "10.1.0.9", "10.1.0.9")


def test_all_ranks_of_a_node_that_was_lost(tmp_path: Path) -> None:
    (suspect,) = pasted(tmp_path, ON_TWO + DEAD.format(9)).suspects
    assert (suspect.ranks, suspect.granularity) == ((2, 3), Granularity.HOST)


@pytest.mark.parametrize(
    "text",
    [
        ON_TWO + DEAD.format(8),
        actors("", "", "10.1.0.9", "10.1.0.9", size=8) + DEAD.format(9),
        WAITED.format(1) + ON_TWO + DEAD.format(9),
        actors("10.1.0.8", "10.1.0.8", "10.1.0.9", "10.1.0.9") + DEAD.format(8) + DEAD.format(9),
    ],
    ids=["another node", "ranks that nobody saw", "after others had given up", "two nodes"],
)
def test_lost_nodes_that_tell_nobody(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))
