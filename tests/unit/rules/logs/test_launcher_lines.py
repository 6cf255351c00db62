"""Ends as launchers and operators print them: who ended first, by rank, by process or by pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Confidence, Outcome
from tests.recordings.verdicts import named, pasted

COMPOSER = "ERROR:composer.cli.launcher:"
RAY = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: W\n\tpid: {0}\n"
RAYLET = (
    "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker IP address: 10.0.0.3 "
    "Worker port: 10029 Worker PID: {} Worker exit type: {} Worker exit detail: Worker unexpectedly exits with an error.\n"
)
KILLED = (
    "Memory on the node (IP: 10.0.0.4, ID: 70) where the task (actor ID: 0d, name=T.__init__, pid={}, memory used=11.15GB) was "
    "running was 12.49GB / 13.15GB (0.95), which exceeds the memory usage threshold of 0.95. Ray killed this worker\n"
)
AGENT = "E0321 02:07:08.1 4711 torch/distributed/elastic/api.py:869] failed (exitcode: {0}) local_rank: {1} (pid: 99)\n"


def composer(*codes: int) -> str:
    return "".join(
        f"{COMPOSER}Global rank {rank} (PID {500 + rank}) exited with code {code}\n" for rank, code in enumerate(codes)
    )


def workers(*pids: int) -> str:
    rows = (
        f"(T pid=1) - (node_id=0c, ip=10.2.0.4, pid={pid}) world_rank={rank}, local_rank=0\n" for rank, pid in enumerate(pids)
    )
    return "".join(rows)


VOLCANO = (
    "I1215 12:28:18.4 1 job_controller.go:356] Try to handle request <Queue: , Job: default/j, Task:worker, Pod:{}, Event:{}, "
    "ExitCode:{}, Action:, JobVersion: 0>\n"
)
EVICTED = ("j-worker-0", "PodEvicted", 0)


def services(*ends: str) -> str:
    starts = "".join(f"train-{number + 1}  | 2026-03-21 joined the group: rank {number}/3\n" for number in range(3))
    return starts + "train-1  | step 40 loss 2.1\n" + "".join(f"{end}\n" for end in ends)


RANKS = "".join(f"rank{number}  | step 40 loss 2.1\n" for number in range(3))


def pods(*names: str) -> str:
    return "".join(
        f"[pod/{name}/c] 2026-03-21T02:04:11Z RANK={rank} WORLD_SIZE={len(names)}\n" for rank, name in enumerate(names)
    )


PADDLE = "2024-05-24 launch_utils.py:545] ABORT!!! Out of all 4 trainers, the trainer process with rank=[{}] was aborted.\n"


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        (f"{COMPOSER}Rank 2 crashed with exit code -7.\n" + composer(-15, -15, -7, -15), 2),
        (composer(-15, -15, -15, -11), 3),
        ("GLOBAL_RANK: 3, MEMBER: 4/4 (pid 61)\n[rank: 0] Child process with PID 61 terminated with code -9. Force\n", 3),
        ("[0]<stderr>:x\nRuntimeError: The first process to do so was:\nExit code: 1\nProcess name: 1\n", 1),
        (workers(50, 51, 52) + RAY.format(52), 2),
        (workers(50, 51, 52) + RAYLET.format(51, "SYSTEM_ERROR") + RAYLET.format(50, "SYSTEM_ERROR"), 1),
        (workers(50, 51, 52) + KILLED.format(50), 0),
        (pods("j-master-0", "j-worker-0", "j-worker-1") + "Error pod j-worker-1 container c exitCode: 137 terminated\n", 2),
        (pods("j-master-0", "j-worker-0", "j-worker-1") + "Pod: vision.j-worker-1 exited with code 137 ExitedWithCode\n", 2),
        (pods("j-worker-0", "j-worker-1") + VOLCANO.format("j-worker-1", "PodFailed", 137) + VOLCANO.format(*EVICTED), 1),
        (services("train-3 exited with code 137", "train-1 exited with code 1", "train-2 exited with code 1"), 2),
        (RANKS.replace("  |", "-1  |") + "rank1-1 exited with code 139\nrank0-1 exited with code 1\n", 1),
        (RANKS + "rank1 exited with code 137\nrank0 exited with code 1\nrank2 exited with code 1\n", 1),
        ("$ torchrun --nnodes=4 --nproc_per_node=8 --node_rank=2 a.py\n" + AGENT.format(-9, 6), 22),
        ("prterun noticed that process rank 3 with PID 0 on node a exited on\nsignal 9 (Killed).\n", 3),
        ("n7: rank 2 died from signal 6 and dumped core\nn9: rank 1 died from signal 15\n", 2),
        ("n7.hsn: rank 2 died from signal 9\nn9.hsn: rank 1 died from signal 6\nn9.hsn: rank 0 died from signal 6\n", 2),
        ("n9: rank 1 died from signal 15\nn7: rank 2 exited with code 139\n", 2),
        ('{"log":"Rank 2 crashed with exit code -7.\\n","stream":"stderr","time":"2026-03-21T02:04:11Z"}\n', 2),
        (f"ERROR {PADDLE.format('3')}", 3),
    ],
    ids=[
        "composer",
        "composer's list",
        "lightning",
        "horovodrun",
        "ray",
        "raylet",
        "memory",
        "operator",
        "event",
        "volcano",
        "compose",
        "compose by ranks, a fault of memory",
        "compose by ranks",
        "static start",
        "prterun",
        "pals",
        "pals kill",
        "pals code",
        "record",
        "paddle",
    ],
)
def test_the_rank_that_a_launcher_saw_end_first(tmp_path: Path, text: str, rank: int) -> None:
    verdict = pasted(tmp_path, text)
    assert (named(verdict), verdict.outcome) == ({rank}, Outcome.FAILSTOP)


@pytest.mark.parametrize(
    "text",
    [
        composer(-15, -15, -15, -15),
        composer(-9, -9, -9, -9),
        "[rank: 0] Child process with PID 61 terminated with code -9. Forcefully\n",
        workers(50, 51, 51) + RAY.format(51),
        RAY.format(52),
        workers(50, 51, 52) + RAYLET.format(51, "INTENDED_USER_EXIT"),
        workers(50, 51, 52) + RAYLET.format(77, "SYSTEM_ERROR"),
        pods("j-worker-0", "j-worker-1") + VOLCANO.format(*EVICTED),
        services("Gracefully stopping... (press Ctrl+C again to force)", "train-3 exited with code 137"),
        services("train-2 exited with code 137", "train-3 exited with code 137"),
        RANKS + "rank1 exited with code 137\nrank0 exited with code 137\nrank2 exited with code 137\n",
        RANKS + "rank0 exited with code 1\nrank1 exited with code 137\n",
        services("train-1 exited with code 1", "Aborting on container exit...", "train-3 exited with code 137"),
        services("train-3 exited with code 137").replace("rank 1/3", "rank 0/3"),
        pods("j-worker-0", "j-worker-1") + "Pod: vision.j-worker-1 exited with code 0\n",
        pods("j-master-0", "j-worker-0") + "Error pod j-worker-7 container c exitCode: 137 terminated\n",
        "[pod/j-worker-1/c] RANK=8\n[pod/j-worker-0/c] RANK=0\nError pod j-worker-1 container c exitCode: 137 terminated\n",
        "$ torchrun --nnodes=4 --rdzv_backend=c10d --nproc_per_node=8 --node_rank=2 a.py\n" + AGENT.format(-9, 6),
        "--nnodes=2 --nproc_per_node=8 --node_rank=1\n--nnodes=2 --nproc_per_node=8 --node_rank=0\n" + AGENT.format(-9, 6),
        "n7: rank 2 died from signal 6\nn9: rank 1 died from signal 9\n",
        "n7: rank 2 died from signal 6\nn9: rank 1 died from signal 6\n",
        "n9: rank 1 died from signal 15\n",
        "all of node 3: rank 1 died from signal 9\n",
        "Exit code: 1\nsomething else\nanother line\nProcess name: 1 of the pool\n",
    ],
    ids=[
        "all ended",
        "all at once",
        "no rank",
        "two ranks",
        "unknown",
        "an end on purpose",
        "unknown to the job",
        "evicted",
        "compose is told to stop",
        "compose kills",
        "compose kills ranks",
        "compose kills the others",
        "compose ends with the first",
        "compose with unknown ranks",
        "sound end",
        "no such pod",
        "pods of eight",
        "elastic",
        "two",
        "pals aborts and kills",
        "pals aborts",
        "pals ends",
        "pals text",
        "code",
    ],
)
def test_ends_that_tell_no_rank(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))


def task(said: str, rest: str = "") -> str:
    cancelled = "slurmstepd: error: *** STEP 4.0 ON n1 CANCELLED AT 2025-04-02T11:20:09 ***\n"
    return f"srun: error: n2: {said}\n{cancelled}{rest}"


def test_a_task_that_was_killed_among_others_on_its_host(tmp_path: Path) -> None:
    assert named(pasted(tmp_path, task("task 5: Out Of Memory", "srun: error: n2: tasks 4,6-7: Terminated\n"))) == {5}


@pytest.mark.parametrize(
    ("says", "right"),
    [
        ("[rank{0}]:[W311 10:00:00.1 socket.cpp:755] [c10d] retrying", {3}),
        ("rank {0}/4 ready", {3}),
        ("tp rank {0}/4 ready", set()),
        ("[rank{1}]:[W311 10:00:00.1 socket.cpp:755] [c10d] retrying", set()),
    ],
    ids=["torch", "the program", "of a group", "a launcher of eight"],
)
def test_a_task_is_the_rank_that_tasks_say_they_are(tmp_path: Path, says: str, right: set[int]) -> None:
    lines = "".join(f"{number}: {says.format(number, 8 * number)}\n{number}: step 1 loss 2.3\n" for number in range(4))
    assert named(pasted(tmp_path, f"{lines}srun: error: n2: task 3: Segmentation fault (core dumped)\n")) == right


@pytest.mark.parametrize("how", ["Exited with exit code 1", "Killed", "Segmentation fault (core dumped)"])
def test_a_task_that_ended_like_many_others_is_not_named(tmp_path: Path, how: str) -> None:
    alike = f"srun: error: n1: tasks 0-3: {how}\nsrun: error: n2: tasks 4,6-7: {how}\n"
    assert not named(pasted(tmp_path, task(f"task 5: {how}", alike)))
    assert named(pasted(tmp_path, task(f"task 5: {how}", alike.replace(how, "Terminated")))) == {5}


def test_why_and_where_a_task_ended_and_that_a_code_is_not_known(tmp_path: Path) -> None:
    (first,) = pasted(tmp_path, task("task 5: Out Of Memory", "srun: error: n2: tasks 4,6-7: Terminated\n")).suspects
    assert (first.hosts, first.evidence[0].statement) == (
        ("n2",),
        "process of rank 5 was ended by signal 9 (SIGKILL, out of memory)",
    )
    (second,) = pasted(tmp_path, workers(50, 51, 52) + RAY.format(52)).suspects
    assert second.evidence[0].statement == "process of rank 2 (pid 52) died; its launcher does not say how"


def test_what_a_rank_raised_tells_more_than_its_code(tmp_path: Path) -> None:
    raised = '[rank1]: Traceback (most recent call last):\n[rank1]:   File "a.py", line 3, in f\n[rank1]: KeyError: 7\n'
    (first,) = pasted(tmp_path, raised + AGENT.format(1, 1)).suspects
    assert first.evidence[0].statement.startswith("its log ends with [rank1]: KeyError: 7")


def test_where_to_begin_with_a_node_that_open_mpi_lost_and_a_replica_that_ended(tmp_path: Path) -> None:
    lost = "ORTE has lost communication with a remote daemon.\n\n  Remote daemon: [[12345,0],3] on node gpu-07\n"
    assert "kernel log of gpu-07, which was lost" in pasted(tmp_path, lost).would_change[0]
    ended = "Replica workerpool1-1 exited with a non-zero status of 137(SIGKILL). Termination reason: OOMKilled.\n"
    assert "the log of pod workerpool1-1, which ended" in pasted(tmp_path, ended).would_change[0]


def test_an_abort_that_nothing_explains_is_a_suspicion(tmp_path: Path) -> None:
    (first,) = pasted(tmp_path, task("task 5: Aborted", "srun: error: n2: tasks 4,6-7: Terminated\n")).suspects
    assert (first.ranks, first.confidence) == ((5,), Confidence.SUSPECT)


def test_where_to_begin_with_a_worker_of_ray_whose_rank_is_not_known(tmp_path: Path) -> None:
    died = RAY.format(52)
    assert "Ray's worker with pid 52" in pasted(tmp_path, died).would_change[0]
    assert "Ray's worker" not in "".join(pasted(tmp_path, died + RAY.format(53)).would_change)


@pytest.mark.parametrize("sent", ["Signals.SIGTERM, forcefully exiting via Signals.SIGKILL", "15, forcefully exiting via 9"])
def test_a_kill_by_the_launcher_of_a_rank_that_did_not_stop_is_no_end_of_its_own(tmp_path: Path, sent: str) -> None:
    entry = "  time : 2025-08-13_06:19:48\n  host : n-4\n  rank : {0} (local_rank: {0})\n  exitcode : {1} (pid: 9{0})\n"
    forced = (
        f"W0813 06:20:18.8 16 torch/distributed/elastic/multiprocessing/api.py:916] Unable to shutdown process 91 via {sent}\n"
    )
    table = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n[1]:\n" + entry.format(1, -9)
    table += "[2]:\n" + entry.format(2, -15) + "Root Cause (first observed failure):\n[0]:\n" + entry.format(0, 1)
    assert named(pasted(tmp_path, forced + table)) == {0}
    (killed,) = pasted(tmp_path, table).suspects
    assert (killed.ranks, killed.confidence) == ((1,), Confidence.LIKELY)


TASK = "ray.exceptions.RayTaskError({0}): ray::{1}() (pid={2}, ip=10.0.0.7, actor_id=0b, repr={3})\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TASK.format("OutOfMemoryError", "p-0-5:Policy.train", 52, "Policy[rank=5]"), "pid 52 (rank 5) on 10.0.0.7"),
        (TASK.format("KeyError", "Runner.run", 9, "x") + "    ray::Worker.f() (pid=52, ip=10.0.0.7)\n", "pid 52 on 10.0.0.7"),
        (TASK.format("ActorDiedError", "Runner.run", 9, "x"), None),
    ],
    ids=["own rank", "passed on", "lost another"],
)
def test_where_to_begin_with_a_task_of_ray_that_raised(tmp_path: Path, text: str, said: str | None) -> None:
    verdict = pasted(tmp_path, 'Traceback (most recent call last):\n  File "a.py", line 3, in main\n' + text)
    assert not named(verdict)
    assert (f"Ray's worker with {said}: its task raised" in "".join(verdict.would_change)) is (said is not None)


def test_a_worker_of_ray_that_calls_itself_by_its_rank(tmp_path: Path) -> None:
    front = "(Policy[rank={0}] pid=3{0}) "
    said = f'{front}Traceback (most recent call last):\n{front}  File "a.py", line 3, in f\n'
    lost = "torch.distributed.DistBackendError: NCCL error, remote process exited or there was a network error"
    own = said.format(5) + "(Policy[rank=5] pid=35) KeyError: 7\n"
    verdict = pasted(tmp_path, own + "".join(said.format(n) + f"(Policy[rank={n}] pid=3{n}) {lost}\n" for n in (4, 6)))
    assert named(verdict) == {5}


def test_an_error_of_one_worker_that_a_controller_shows_alone_is_no_proof(tmp_path: Path) -> None:
    said = '[Rank 3 Error Snippet]:\nTraceback (most recent call last):\n  File "t.py", line 20, in f\nValueError: x\n'
    (first,) = pasted(tmp_path, said).suspects
    assert (first.ranks, first.confidence) == ((3,), Confidence.LIKELY)


def test_one_task_on_its_host_may_be_a_launcher(tmp_path: Path) -> None:
    assert not named(pasted(tmp_path, task("task 1: Exited with exit code 1", "srun: error: n1: task 0: Terminated\n")))
