"""Where a report says to look first when nobody can be named, and that what proves nothing accuses nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.recordings.verdicts import unnamed

FAILED = "step 4 loss 2.1\nsrun: error: Node failure on n0219\nsrun: error: n0214: tasks 0-7: Killed\n"
CANCELLED = "step 4\nslurmstepd: error: *** JOB 8 ON n0214 CANCELLED AT 2026-02-11T03:12:44 DUE TO NODE FAILURE, SEE LOG ***\n"
STOPPED = "W0409 07:28:49.53 13 agent/server/api.py:719] Received 15 death signal, shutting down workers\n"
LOST_PEER = "[rank1]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
MPI_CRASH = "[n-2:mpi_rank_5][error_sighandler] Caught error: Segmentation fault (signal 11)\n"
DOWN = "[2026-02-11T03:12:44.112] error: Nodes n0219 not responding, setting DOWN\n[2026-02-11T03:12:45.001] sched: done\n"
DIED = (
    "(EngineCore pid=9) ERROR 08-19 03:13:57 [x.py:341] RayWorkerProc rank=[{0}] died unexpectedly, shutting down executor.\n"
)
TABLE = "  PID  PPID STAT CMD\n" + "".join(f"{701 + n} 650 Sl /usr/bin/python3 fit.py --local_rank={n}\n" for n in range(4))
FAULT = "[Wed Jun 24 18:44:20 2026] NVRM: Xid (PCI:0000:{0}a:00): 31, pid={1}, name=python3, Ch 2, intr 0. MMU Fault: ENGINE\n"
GPU = (
    "|   {0}  NVIDIA H100 80GB HBM3          On  |   00000000:1{0}:00.0 Off |                    0 |\n"
    "| N/A   41C    P0             {1:3d}W /  700W |   61234MiB /  81559MiB |   {2:4d}%      Default |\n"
)
RUNS = "|    {0}   N/A  N/A     {1}      C   /opt/conda/bin/python                       61220MiB |\n"


def table(busy: Sequence[int], watts: int = 118, pids: int = 4100) -> str:
    """`nvidia-smi` of a host with one process on each GPU, by how busy the GPUs are."""
    return in_container(busy, watts) + "| Processes: |\n" + "".join(RUNS.format(n, pids + n) for n in range(len(busy)))


def in_container(busy: Sequence[int], watts: int = 118) -> str:
    """The same where no process is shown."""
    head = "| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |\n"
    return head + "".join(GPU.format(n, watts if share else 70, share) for n, share in enumerate(busy))


TIMEOUT = (
    "[E ProcessGroupNCCL.cpp:475] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={1}, "
    "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800123 milliseconds before timing out.\n"
)


DIGEST = (
    "Megascale hang detected: Timed out waiting for 4 graphs to complete at launch_id 13650. Already completed: 100.\n"
    "E0618 04:11:09.1 1201 x.cc:512] Megascale detects a hang that is likely caused by bad TPU chips on the following hosts.\n"
    "    Potential culprit workers: {0}\n"
)
PODS = (
    "NAME          READY   STATUS      RESTARTS   AGE\n"
    "fit-worker-0   1/1     Running     0          5h\n"
    "fit-worker-1   0/1     OOMKilled   0          5h\n"
)


LINK = "[Thu Nov 26 05:5{1}:58 2026] mlx5_core 0000:c1:00.0 {0}: Link {2}\n"


def clocks(*reasons: int) -> str:
    """`nvidia-smi --query-gpu` of a host, by the active reasons for low clocks of its GPUs."""
    rows = "".join(f"{gpu}, {345 if reason & 0x40 else 1755} MHz, 0x{reason:016x}\n" for gpu, reason in enumerate(reasons))
    return f"index, clocks.current.sm [MHz], clocks_throttle_reasons.active\n{rows}"


LOST = "RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.4]:1182"


def replies(*said: tuple[str, int]) -> dict[str, str]:
    """What processes of one node, of an unknown number of nodes, wrote by `@record`: error and second."""
    form = '{{"message": {{"message": "{0}", "extraInfo": {{"py_callstack": "", "timestamp": "{1}"}}}}}}'
    return {f"attempt_0/{local}/error.json": form.format(text, 1_700_000_000 + time) for local, (text, time) in enumerate(said)}


EVICTED = (
    "LAST SEEN   TYPE      REASON                  OBJECT              MESSAGE\n"
    "12m         Normal    NodeNotReady            node/n-5            Node n-5 status is now: NodeNotReady\n"
    "7m          Normal    TaintManagerEviction    pod/fit-worker-5    Marking for deletion Pod train/fit-worker-5\n"
)
KILLED = (
    "LAST SEEN   TYPE      REASON        OBJECT              MESSAGE\n"
    "3m12s       Warning   OOMKilling    node/n-5            Memory cgroup out of memory: Killed process 41230 (python)\n"
)
GONE = "RuntimeError: [x/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:40120"


def raised(*errors: str) -> dict[str, str]:
    """What processes of one node wrote before they ended."""
    text = 'step 4\nTraceback (most recent call last):\n  File "t.py", line 90, in <module>\n{}\n'
    return {f"attempt_0/{local}/stderr.log": text.format(error) for local, error in enumerate(errors)}


def diagnostics(result: str) -> str:
    """The table of `dcgmi diag` by the result of a test of memory."""
    rows = (("Diagnostic", "Result"), ("NVML Library", "Pass"), ("GPU Memory", result))
    return "".join(f"| {name:25} | {said:46} |\n" for name, said in rows)


def ports(*states: str, model: str = "MT4129") -> str:
    """`ibstat` of a host, by the states of the ports of its NICs."""
    return "".join(
        f"CA 'mlx5_{nic}'\n\tCA type: {model}\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: {state.split(', ')[0]}\n"
        f"\t\tPhysical state: {state.split(', ')[1]}\n\t\tRate: 400\n\t\tLink layer: InfiniBand\n"
        for nic, state in enumerate(states)
    )


UP, POLLS, OFF = "Active, LinkUp", "Down, Polling", "Down, Disabled"


def metrics(clocks: Sequence[int], busy: Sequence[int], mask: int = 4) -> str:
    """What dcgm-exporter tells of a host, by the clocks of its GPUs and how busy they are."""
    row = 'DCGM_FI_DEV_{0}{{gpu="{1}",UUID="GPU-{1}",Hostname="n-7"}} {2}\n'
    return "".join(
        row.format(name, gpu, value)
        for gpu, values in enumerate(zip(clocks, busy, strict=True))
        for name, value in (*zip(("SM_CLOCK", "GPU_UTIL"), values, strict=True), ("CLOCKS_EVENT_REASONS", mask))
    )


@pytest.mark.parametrize(
    ("busy", "expected"),
    [
        ([70, 71, 99, 70], True),  # the others wait for it
        ([99, 99, 99, 99], True),
        ([70, 71, 60, 70], False),  # it may have little to do
        ([70, 5, 99, 70], False),  # idle ones lower their clocks
    ],
)
def test_one_gpu_that_computes_far_below_the_clocks_of_the_others(tmp_path: Path, busy: list[int], expected: bool) -> None:
    verdict = unnamed(tmp_path, {"metrics.prom": metrics([1980, 1975, 345, 1980], busy, mask=0), **timeouts(9, 9, 9, 9)})
    assert any("it computes at 345 MHz" in lead for lead in verdict.leads) == expected


def timeouts(*numbers: int) -> dict[str, str]:
    """Lines without a group, by the number of the work that each rank gave up on."""
    return {"job.log": "".join(TIMEOUT.format(rank, number) for rank, number in enumerate(numbers))}


STARTS = ("console", "the end of the log", "stack and log", "log and stack")
TWO_HOSTS = {
    "hostfile": "node-a slots=4\nnode-b slots=4\n",
    "node-a.txt": table([100] * 4),
    "node-b.txt": table([100, 0, 100, 100]),
}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (timeouts(9, 9, 8, 9, 9), "log and stack of rank 2: it gave up on ALLREDUCE seq=8 (job.log#line=3) while 4 others"),
        (
            {"pods.txt": PODS, **timeouts(*[9] * 8)},
            "the log of pod fit-worker-1, which ended (pods.txt#line=3), and which ranks ran in it",
        ),
        (
            {"job.log": DIGEST.format("ft/3:tpu-w7")},
            "the logs and devices of ft/3:tpu-w7: Megascale calls them potential culprits of the hang (job.log#line=3)",
        ),
        (
            {"job.log": "step 4\n" + "HW Exception by GPU node-9 (Agent handle: 0x63) reason :GPU Hang\n" * 4},
            "the GPU that ROCm numbers node-9 on its host (`rocminfo`) and the kernel log there: it failed (job.log#line=2)",
        ),
        (
            {"events.txt": EVICTED, **timeouts(*[9] * 8)},
            "the log of pod fit-worker-5, which was evicted (events.txt#line=3), and which ranks ran in it",
        ),
        (
            {"n1/dmesg": LINK.format("ens8f0np0", 1, "down"), **timeouts(*[9] * 8)},
            "ens8f0np0 of its host, cable and switch port, and the ranks that use it: its link went down (n1/dmesg#line=1)",
        ),
        (
            {"gpus.csv": clocks(4, 4, 0x68, 4), **timeouts(*[9] * 4)},
            "GPU-2 and the rank on it: its clocks are held down (hw_slowdown, hw_thermal_slowdown, sw_thermal_slowdown; "
            "gpus.csv#line=4), those of 3 others are not",
        ),
        (
            replies((LOST, 9), (LOST, 8), ("ValueError: bad row", 4)),
            "the log beside attempt_0/2/error.json, and which rank wrote it: it ended by its own ValueError, 2 others of",
        ),
        (
            {"diag.txt": diagnostics("Fail - GPU: 6"), **timeouts(*[9] * 8)},
            "GPU-6 and the rank on it: DCGM's test GPU Memory failed (diag.txt#line=3)",
        ),
        (
            {"node-1/ibstat": ports(UP, POLLS), "node-2/ibstat": ports(UP, UP), **timeouts(*[9] * 8)},
            "mlx5_1/1 of node-1, cable and switch port, and the ranks that use it: its port is down (Down, Polling; "
            "node-1/ibstat), it is up on 1 other host",
        ),
        (
            {"ibstat.txt": ports(UP, UP, POLLS, UP), **timeouts(*[9] * 8)},
            "mlx5_2/1 of its host, cable and switch port, and the ranks that use it: its port is down (Down, Polling; "
            "ibstat.txt), 3 others of the host are up",
        ),
        (
            {"n.prom": metrics([1980, 1965, 345, 1980], [100] * 4), **timeouts(*[9] * 4)},
            "GPU-2 of n-7 and the rank on it: it computes at 345 MHz (n.prom), 3 others at 1965 MHz or more",
        ),
        (
            raised("ValueError: bad row", *(GONE.replace("40120", f"401{n}") for n in range(3))),
            "attempt_0/0/stderr.log#line=4, and which rank wrote it: it raised its own ValueError, 3 other logs end by",
        ),
        (
            {
                f"msrun_log/worker_{n}.log": f"epoch: 1 step: 10, loss is 3.{n}\nepoch: 1 step: 20, loss is 2.{n}\n"
                for n in range(3)
            }
            | {"msrun_log/worker_3.log": raised("ValueError: bad row")["attempt_0/0/stderr.log"]},
            "msrun_log/worker_3.log#line=4, and which rank wrote it: it raised its own ValueError, 3 other logs raised nothing",
        ),
        (
            {"a.log": MPI_CRASH},
            "the error of rank 5: [n-2:mpi_rank_5][error_sighandler] Caught error: Segmentation fault (signal 11)",
        ),
        (
            {"n0.log": LOST_PEER, "n1.log": STOPPED},
            "what stopped the job: its launcher got SIGTERM, as of a scheduler, a preemption",
        ),
        (
            {"a.log": STOPPED.replace("15", "SIGHUP")},
            "what stopped the job: its launcher got SIGHUP, as when its terminal closes",
        ),
        (
            {"a.log": CANCELLED.replace("NODE FAILURE, SEE LOG", "TIME LIMIT")},
            "the scheduler: it cancelled the job for its time limit",
        ),
        (
            {"events.txt": KILLED, **timeouts(*[9] * 8)},
            "which rank was the process on node/n-5 that the kernel killed for its memory (events.txt#line=2)",
        ),
        ({"job.log": FAILED}, "console and kernel log of n0219, which was lost (job.log#line=2)"),
        ({"job.log": "[rank0] x\n" + DIED.format(5)}, "the end of the log of worker 5 "),
        (
            {"dmesg.txt": FAULT.format(9, 703), "ps.txt": TABLE, "a.log": "dist_world_size=4\nstep 7 loss 2.1\n"},
            "stack and log of rank 2: ",
        ),
        (TWO_HOSTS, "stack and log of process 4101 on GPU-1 of node-b: it is idle while 7 others are busy"),
        (
            {"a.txt": in_container([100, 0, 100, 100])},
            "stack and log of the process that holds GPU-1, which is idle while 3 others",
        ),
    ],
    ids=[
        "another call",
        "a pod",
        "a digest",
        "a GPU of ROCm",
        "an evicted pod",
        "a link",
        "a hot GPU",
        "an error of its own",
        "a failed test",
        "a port that is up elsewhere",
        "a port of a host",
        "a low clock",
        "an exception of its own",
        "the one exception",
        "the one rank with an error",
        "a launcher that was stopped",
        "a closed terminal",
        "a time limit",
        "a kill for memory",
        "a node",
        "a worker",
        "a fault",
        "an idle GPU",
        "an idle GPU whose processes are not shown",
    ],
)
def test_who_is_looked_at_first(tmp_path: Path, files: Mapping[str, str], said: str) -> None:
    assert unnamed(tmp_path, files).would_change[0].startswith(said)


@pytest.mark.parametrize(
    "files",
    [
        timeouts(9, 9, 8, 8, 9, 9),
        timeouts(*[9] * 8) | {"n1.log": STOPPED},
        {"a.log": STOPPED.replace("15", "SIGINT")},
        timeouts(9, 9, 8, 7, 9, 9),
        timeouts(9, 8),
        {"dmesg": LINK.format("ens8", 1, "down") + LINK.format("ens8", 2, "up"), **timeouts(*[9] * 8)},
        {"dmesg": LINK.format("ens8", 1, "down") + LINK.format("ens9", 1, "down"), **timeouts(*[9] * 8)},
        {"dmesg": LINK.format("veth8", 1, "down"), **timeouts(*[9] * 8)},
        {"gpus.csv": clocks(4, 0x48, 0x48, 4), **timeouts(*[9] * 4)},
        {"gpus.csv": clocks(4, 4, 4, 4), **timeouts(*[9] * 4)},
        replies((LOST, 9), ("KeyError: 4", 5), ("ValueError: bad row", 4)),
        replies((LOST, 9), (LOST, 3), ("ValueError: bad row", 4)),
        replies((LOST, 9), (LOST, 9), (LOST, 9)),
        raised("ValueError: bad row", GONE),
        raised("ValueError: bad row", "KeyError: 4", GONE, f"{GONE}9"),
        raised(GONE, f"{GONE}8", f"{GONE}9"),
        {"diag.txt": diagnostics("Fail - GPUs: 5, 6"), **timeouts(*[9] * 8)},
        {"node-1/ibstat": ports(UP, POLLS), "node-2/ibstat": ports(POLLS, UP), **timeouts(*[9] * 8)},
        {"node-1/ibstat": ports(UP, OFF), "node-2/ibstat": ports(UP, UP), **timeouts(*[9] * 8)},
        {"node-1/ibstat.1": ports(UP, POLLS), "node-1/ibstat.2": ports(UP, UP), **timeouts(*[9] * 8)},
        {"ibstat.txt": ports(UP, UP, UP) + ports(POLLS, model="MT4117").replace("mlx5_0", "mlx5_9"), **timeouts(*[9] * 8)},
        {"n.prom": metrics([1980, 1965, 345, 1980], [100, 100, 0, 100]), **timeouts(*[9] * 4)},
        {"n.prom": metrics([1980, 345, 345, 1980], [100] * 4), **timeouts(*[9] * 4)},
        {"n.prom": metrics([1980, 1400, 900, 1980], [100] * 4), **timeouts(*[9] * 4)},
        {"slurmctld.log": DOWN},
        {"job.log": "[rank0] x\n" + DIED.format(5) + DIED.format(6)},
        {"dmesg.txt": FAULT.format(9, 799), "ps.txt": TABLE, "a.log": "dist_world_size=4\nstep 7 loss 2.1\n"},
        {"n-a.txt": table([100, 0, 0, 100])},
        {"n-a.txt": table([91, 0, 100, 100])},
        {"n-a.txt": table([100, 0])},
    ],
    ids=[
        "two in another call",
        "stopped after all gave up",
        "somebody at the keyboard",
        "three calls",
        "two ranks",
        "a link that came back",
        "two links",
        "a link of a container",
        "two hot GPUs",
        "limits of power",
        "two errors of their own",
        "an error that came later",
        "errors that follow",
        "exceptions of two processes",
        "two exceptions of their own",
        "exceptions that follow",
        "two failed tests",
        "two ports",
        "a port that was switched off",
        "a port that came back",
        "a NIC of another model",
        "a low clock of an idle GPU",
        "two low clocks",
        "clocks that differ",
        "any node of a cluster",
        "two workers",
        "another process",
        "two idle",
        "one less busy",
        "two GPUs",
    ],
)
def test_what_points_at_nobody(tmp_path: Path, files: Mapping[str, str]) -> None:
    found = unnamed(tmp_path, files).would_change
    assert not [
        text
        for text in found
        if any(
            word in text
            for word in (
                "link went down",
                "port is down",
                "held down",
                "computes at",
                "DCGM's test",
                "the log beside",
                "raised its own",
            )
        )
        or text.startswith(STARTS)
    ]


def test_a_gpu_that_nobody_uses_is_no_lead(tmp_path: Path) -> None:
    free = in_container([100, 100, 100, 0]).splitlines(keepends=True)
    free[-1] = free[-1].replace("61234MiB", "    4MiB")
    assert not unnamed(tmp_path, {"a.txt": "".join(free)}).leads


def test_how_busy_gpus_are_that_wait(tmp_path: Path) -> None:
    assert "at no more than 17 % of their power" in unnamed(tmp_path, {"a.txt": table([100, 100, 100, 0])}).would_change[0]
    assert "of their power" not in unnamed(tmp_path, {"a.txt": table([100, 100, 100, 0], watts=610)}).would_change[0]
