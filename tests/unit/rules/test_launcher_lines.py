"""Ends as launchers and operators print them: who ended first, by rank, by process or by pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Confidence, Outcome
from tests.recordings.verdicts import named, pasted, verdict_of

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


def of_step(kills: int, *said: str, form: str = "oom_kill events in StepId=4.0. Some of the step tasks") -> str:
    """What Slurm prints of a step of six tasks on one host whose memory ran out."""
    killed = f"slurmstepd: error: Detected {kills} {form} have been OOM Killed.\n"
    return killed + "".join(f"srun: error: n2: {line}\n" for line in said)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (of_step(3, "tasks 1-2,4: Out Of Memory", "tasks 0,3,5: Terminated"), {1, 2, 4}),
        (of_step(2, "tasks 0-1: Out Of Memory", form="oom-kill event(s) in StepId=4.0 cgroup. Some of the tasks"), {0, 1}),
        (of_step(1, "task 2: Out Of Memory", "task 3: Out Of Memory") + of_step(1), {2, 3}),
    ],
    ids=["some of a host", "older form", "by node"],
)
def test_tasks_that_were_killed_for_memory(tmp_path: Path, text: str, right: set[int]) -> None:
    verdict = pasted(tmp_path, text)
    assert named(verdict) == right
    assert "held the memory" in verdict.suspects[0].next_steps[0]


@pytest.mark.parametrize(
    "text",
    [
        of_step(1, "tasks 1-2,4: Out Of Memory"),
        of_step(7, "tasks 0-5: Out Of Memory"),
        of_step(2, "tasks 0-1: Killed"),
        of_step(1, "tasks 0-1: Out Of Memory") + of_step(1).replace("4.0", "9.0"),
        of_step(2, "tasks 0-1: Out Of Memory", form="oom_kill events in StepId=4.batch. Some of the step tasks"),
    ],
    ids=["one kill of three tasks", "children too", "another reason", "two steps", "of the script"],
)
def test_tasks_of_which_nothing_tells_who_was_killed_for_memory(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))


def test_where_to_begin_with_the_one_task_of_a_host_that_was_killed_for_memory(tmp_path: Path) -> None:
    of_nodes = of_step(1, "task 1: Out Of Memory") + "srun: error: n1: task 0: Terminated\n"
    verdict = pasted(tmp_path, "srun -N2 --ntasks-per-node=1 torchrun --nnodes=2 --nproc_per_node=8 a.py\n" + of_nodes)
    assert not named(verdict)
    assert verdict.would_change[0].startswith("what task 1 of srun on n2 was, one rank or the launcher of several")


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


def init(rank: int, bus: str, host: str = "n7", size: int = 4) -> str:
    front = f"{host}:{900 + rank}:{900 + rank} [{rank % 8}] NCCL INFO comm 0x{rank + 16:x} rank {rank} nranks {size}"
    return f"{front} cudaDev {rank} nvmlDev {rank} busId {bus} commId 0xabc - Init COMPLETE\n"


DEVICES = init(0, "7000") + init(1, "b000") + init(2, "8b000") + init(3, "c8000")
XID = "[Tue Jan  2 10:00:02 2024] NVRM: Xid (PCI:0000:{0}:00): {1}, pid={2}, name=python, GPU has fallen off the bus.\n"


def test_a_device_that_was_lost_is_that_of_the_rank_whose_process_uses_it(tmp_path: Path) -> None:
    verdict = pasted(tmp_path, DEVICES + XID.format("8b", 79, 902))
    assert (named(verdict), verdict.suspects[0].cause.value) == ({2}, "gpu_fault")


@pytest.mark.parametrize(
    "text",
    [
        DEVICES + XID.format("8b", 79, 901),
        DEVICES + XID.format("8b", 31, 902),
        DEVICES + XID.format("9d", 79, 902),
        DEVICES + init(4, "8b000", "n8", 8) + XID.format("8b", 79, 902),
        DEVICES + XID.format("8b", 79, 902) + XID.format("b0", 79, 901).replace("b0", "0b") + XID.format("c8", 79, 903),
    ],
    ids=["other process", "a program's fault", "unknown device", "two hosts", "several devices"],
)
def test_faults_of_devices_that_tell_no_rank(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))


def caught(rank: int, error: str, at: int = 0) -> str:
    frames = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n'
    return "step\n" * at + f"ERROR [02/10 10:28:51 rank{rank} engine]: Exception during training:\n{frames}{error}\n"


LOST = "RuntimeError: [pair.cc:575] Connection closed by peer [127.0.1.1]:39827"


def test_the_one_error_that_tells_of_no_peer(tmp_path: Path) -> None:
    assert named(pasted(tmp_path, caught(2, "AssertionError: x") + caught(0, LOST) + caught(1, LOST))) == {2}


@pytest.mark.parametrize(
    "text",
    [
        caught(2, "AssertionError: x"),
        caught(2, "AssertionError: x") + caught(0, LOST, at=5000),
        caught(0, LOST) + caught(2, "AssertionError: x"),
        caught(2, "AssertionError: x") + caught(3, "AssertionError: x") + caught(0, LOST),
    ],
    ids=["alone", "long before", "behind", "two"],
)
def test_errors_that_a_program_caught_and_that_are_no_cause(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))


@pytest.mark.parametrize("prompt", ["ada@n1:~/t$", "[ada@n1 t]$", "(fit) [root@n1 ~]#"])
def test_an_attempt_that_was_followed_by_another_tells_nothing_of_it(tmp_path: Path, prompt: str) -> None:
    start, failed = (
        prompt + " torchrun --nproc_per_node=2 fit.py --batch {0}\n",
        "[rank1]: ValueError: x\n" + AGENT.format(-9, 1),
    )
    assert named(pasted(tmp_path, start.format(64) + failed)) == {1}
    assert not named(pasted(tmp_path, start.format(64) + failed + start.format(32) + "step 1\n"))
    assert named(pasted(tmp_path, start.format(64) + failed + start.format(32) + AGENT.format(-9, 0))) == {0}
    assert named(pasted(tmp_path, start.format(64) + failed + "$ torchrun --version\n$ python a.py torchrun x\n")) == {1}


def test_a_wait_of_an_earlier_attempt_names_nobody(tmp_path: Path) -> None:
    start = "$ torchrun --nproc_per_node=4 fit.py\n"
    waits = "".join(
        f"[rank{rank}]:[E1103 03:22:51.2 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=411, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600017 milliseconds\n"
        for rank in (0, 1, 3)
    )
    assert named(pasted(tmp_path, start + waits)) == {2}
    later = pasted(tmp_path, start + waits + start + "step 100 loss 2.9\nstep 110 loss 2.8\n")
    assert (named(later), later.outcome) == (set(), Outcome.INCONCLUSIVE)
    assert "rank 2" not in "".join(later.would_change)


@pytest.mark.parametrize(("label", "right"), [("(head, rank=0, pid=7) ", {5}), ("(worker1, rank=1, pid=7) ", set())])
def test_a_local_rank_on_another_node_of_skypilot_is_no_rank_of_the_job(tmp_path: Path, label: str, right: set[int]) -> None:
    assert (
        named(pasted(tmp_path, "".join(f"{label}{line}\n" for line in ("step 4 loss 2.1", AGENT.format(-9, 5).strip()))))
        == right
    )


@pytest.mark.parametrize(
    ("others", "right"),
    [("", {5}), ("worker-1: step 9 loss 2.0\n", {5}), ("worker-0: step 9 loss 2.0\n", set()), ("step 3: loss 2.0\n", {5})],
    ids=["alone", "of that host", "of two hosts", "no host"],
)
def test_a_local_rank_behind_the_name_of_one_of_several_hosts(tmp_path: Path, others: str, right: set[int]) -> None:
    assert named(pasted(tmp_path, others + "worker-1: " + AGENT.format(-9, 5))) == right


@pytest.mark.parametrize(
    ("name", "text", "right"),
    [
        ("pod-1.log", "step 3 loss 2.0\nstep 4 loss 1.9\n", set()),
        ("launch.log", "step 3 loss 2.0\nstep 4 loss 1.9\n", {5}),
        ("pod-1.log", "2026-03-01 10:00:00 step 3\n2026-03-01 10:00:09 step 4\n2026-03-01 10:00:18 step 5\n", {5}),
    ],
    ids=["of another host, or a try", "another kind of log", "a try before it"],
)
def test_a_local_rank_in_one_of_several_logs_that_are_called_alike(
    tmp_path: Path, name: str, text: str, right: set[int]
) -> None:
    dated = "".join(f"2026-03-02 10:00:{n}0 step {n}\n" for n in range(4))
    (tmp_path / "pod-0.log").write_text(dated + AGENT.format(-9, 5))
    (tmp_path / name).write_text(text)
    assert named(verdict_of(tmp_path)) == right


def test_a_command_on_another_node_begins_no_other_attempt(tmp_path: Path) -> None:
    start = "[ada@n{0} t]$ torchrun --nnodes=2 --nproc_per_node=2 --node_rank={0} fit.py\n"
    lost = "[rank{0}]: torch.distributed.DistBackendError: NCCL error, remote process exited or there was a network error\n"
    own = start.format(0) + "[rank1]: ValueError: x\n" + lost.format(0) + start.format(1) + lost.format(2) + lost.format(3)
    assert named(pasted(tmp_path, own)) == {1}
    assert not named(pasted(tmp_path, own + start.format(0) + lost.format(2) + lost.format(3)))


READY = "[pod/j-{0}/c] 2026-03-21T02:04:11Z worker up, rank {1}/{2} on 10.0.0.{1}\n"
PODS = "".join(READY.format(name, rank, 3) for rank, name in enumerate(("master-0", "worker-0", "worker-1")))


def described(pod: str, code: int, reason: str, state: str = "Last State") -> str:
    """`kubectl describe pod`, as far as it matters."""
    lines = [f"Name:             {pod}", "Namespace:        x", "    State:          Running", "      Started:      Thu"]
    lines += [
        f"    {state}:     Terminated",
        f"      Reason:       {reason}",
        f"      Exit Code:    {code}",
        "    Ready:  True",
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        described("j-worker-0", 137, "OOMKilled"),
        described("j-worker-0", 139, "Error"),
        described("j-worker-0", 137, "OOMKilled", "State"),
    ],
)
def test_the_pod_that_is_described_as_ended(tmp_path: Path, text: str) -> None:
    verdict = pasted(tmp_path, PODS + text)
    assert (named(verdict), verdict.outcome) == ({1}, Outcome.FAILSTOP)


@pytest.mark.parametrize(
    "text",
    [
        PODS + described("j-worker-0", 137, "Error"),
        PODS + described("j-worker-0", 143, "Error"),
        PODS + described("j-worker-0", 0, "Completed"),
        PODS + described("j-worker-7", 137, "OOMKilled"),
        PODS + described("j-worker-0", 137, "OOMKilled") + described("j-worker-1", 137, "OOMKilled"),
        READY.format("worker-0", 5, 8) + READY.format("worker-1", 6, 8) + described("j-worker-0", 137, "OOMKilled"),
        described("j-worker-0", 137, "OOMKilled"),
    ],
    ids=["deleted", "told to end", "in order", "another pod", "two of them", "pods of a larger job", "no rank"],
)
def test_pods_of_which_nothing_tells_that_their_rank_failed(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))


DIFFERS = "[rank{0}]: AssertionError: Rank {1} has different values for step: 8016.0. Other ranks: 7870.0\n"
SPOILT = (
    "[rank{0}]: RuntimeError: Rank {1}, node a, device 2, iteration 9: Unexpected result nan (found NaN in local grad norm)\n"
)


def test_the_rank_that_all_find_to_differ(tmp_path: Path) -> None:
    assert named(pasted(tmp_path, "".join(DIFFERS.format(rank, 2) for rank in range(4)))) == {2}
    assert not named(pasted(tmp_path, DIFFERS.format(0, 2))), "seen by one of them"
    assert not named(pasted(tmp_path, DIFFERS.format(0, 1) + DIFFERS.format(1, 0))), "each finds the other"


def test_an_error_that_says_where_it_was_found(tmp_path: Path) -> None:
    assert named(pasted(tmp_path, SPOILT.format(2, 2))) == {2}
    assert not named(pasted(tmp_path, SPOILT.format(2, 3)))
    assert not named(pasted(tmp_path, SPOILT.format(2, 2) + SPOILT.format(3, 3)))


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("a:9:9 [0] init.cc:497 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000\n", "failstop"),
        ("RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: x\n", "failstop"),
        ("(EngineCore_DP1 pid=9) ERROR 02-01 10:20:00 [core.py:710] EngineCore encountered a fatal error.\n", "failstop"),
        ("(EngineCore pid=9) ERROR Worker proc VllmWorker-0 died unexpectedly, shutting down executor.\n", "failstop"),
        ("a:9:9 [0] NCCL INFO no Duplicate GPU found\n", "inconclusive"),
        ("WARNING checks for mismatch between collectives are on\n", "inconclusive"),
        ("INFO Worker proc VllmWorker-0 started\n", "inconclusive"),
    ],
)
def test_ends_of_the_whole_job(tmp_path: Path, text: str, outcome: str) -> None:
    verdict = pasted(tmp_path, "[rank0] x\n" + text)
    assert (named(verdict), verdict.outcome) == (set(), outcome)


def engine(rank: int, label: str = "EngineCore", form: str = "Worker proc VllmWorker-{}") -> str:
    return f"({label} pid=58) ERROR 03-21 02:07:04 [m.py:230] {form.format(rank)} died unexpectedly, shutting down executor.\n"


def fault(*ranks: int) -> str:
    said = "Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered"
    return "".join(
        f"[rank{rank}]:[E321 02:07:03.34 ProcessGroupNCCL.cpp:2068] [PG ID 4 Rank {rank}] {said}\n" for rank in ranks
    )


def test_the_one_that_died_of_two_workers_of_vllm(tmp_path: Path) -> None:
    left = "(VllmWorker rank={} pid=41) INFO Parent process exited, terminating worker\n"
    assert named(pasted(tmp_path, engine(1) + left.format(0))) == {1}
    assert named(pasted(tmp_path, engine(2) + left.format(0))) == set(), "another one may have died as well"
    assert named(pasted(tmp_path, engine(1) + left.format(1))) == set()


@pytest.mark.parametrize("form", ["Worker proc VllmWorker-{}", "RayWorkerProc rank=[{}]"])
@pytest.mark.parametrize("label", ["EngineCore", "EngineCore_DP0"])
def test_the_worker_of_vllm_that_died_of_its_own_error(tmp_path: Path, form: str, label: str) -> None:
    assert named(pasted(tmp_path, fault(3) + engine(3, label, form=form))) == {3}


@pytest.mark.parametrize(
    "text",
    [
        engine(3),
        fault(0, 1, 2, 3) + engine(2),
        fault(3) + engine(1),
        fault(3) + engine(3, "EngineCore_DP1"),
        fault(3) + engine(3, form="RayWorkerProc rank=[2, {}]"),
    ],
    ids=["no error", "the error of all", "the error of another one", "a replica", "several died"],
)
def test_a_worker_of_vllm_that_only_died_is_no_suspect(tmp_path: Path, text: str) -> None:
    assert named(pasted(tmp_path, text)) == set()
