"""Which rank a process of a loose file is: by environments, commands, launchers, NCCL, lists of hosts, prompts and names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.case.database import Connection
from forensics.ingest._shared.prompts import prompt_host
from tests.recordings.verdicts import named, verdict_of

STACK = """Process {pid}: python train.py
Thread {pid} (idle): "MainThread"
    {inner}
    main (train.py:9)
    <module> (train.py:12)
"""
WAITS = "all_reduce (torch/distributed/distributed_c10d.py:2195)\n    step (train.py:5)"
WATCHDOG = (
    "[rank{rank}]:[E1004 03:01:36.7 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=17, OpType=ALLREDUCE, NumelIn=2, NumelOut=2, Timeout(ms)=600000) ran for 600028 milliseconds\n"
    "[rank{rank}]:[E1004 03:01:36.8 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Exception (either "
    "an error or timeout) detected by watchdog at work: 17, last enqueued NCCL work: 17, last completed NCCL work: 16.\n"
)
NCCL = (
    "{host}:{pid}:{pid} [{gpu}] NCCL INFO comm 0x55d0{pid} rank {rank} nranks {size} cudaDev {gpu} busId {gpu}b000 "
    "commId 0x9f2b - Init {how}\n"
)


def case_of(folder: Path, files: Mapping[str, str]) -> Connection:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return open_case([folder])


def ranks_of_stacks(connection: Connection) -> dict[int, int | None]:
    return dict(connection.execute("SELECT DISTINCT pid, rank FROM stacks").fetchall())


def nccl(host: str, pid: int, rank: int, size: int) -> str:
    return "".join(
        NCCL.format(host=host, pid=pid, rank=rank, size=size, gpu=rank % 2, how=how) for how in ("START", "COMPLETE")
    )


@pytest.mark.parametrize(
    "text",
    [
        "== 4101\nLOCAL_RANK=0\nRANK=2\nWORLD_SIZE=4\n== 4102\nLOCAL_RANK=1\nRANK=3\nWORLD_SIZE=4\n",
        "[root@n1 ~]# for p in $(pgrep train); do echo $p; done\n4101\nRANK=2\nWORLD_SIZE=4\n4102\nRANK=3\nWORLD_SIZE=4\n",
        "/proc/4101/environ:RANK=2\n/proc/4101/environ:WORLD_SIZE=4\n/proc/4102/environ:RANK=3\n/proc/4102/environ:WORLD_SIZE=4\n",
        "4101: RANK=2 LOCAL_RANK=0 WORLD_SIZE=4\n4102: RANK=3 LOCAL_RANK=1 WORLD_SIZE=4\n",
    ],
)
def test_environments_of_several_processes_in_one_text(tmp_path: Path, text: str) -> None:
    stacks = {f"py-spy.{pid}.txt": STACK.format(pid=pid, inner=WAITS) for pid in (4101, 4102)}
    assert ranks_of_stacks(case_of(tmp_path, {"env.txt": text, **stacks})) == {4101: 2, 4102: 3}


@pytest.mark.parametrize(
    "text",
    [
        "== 4101\nRANK=2\n== 4102\nRANK=2\n",  # two jobs, or children that inherit
        "== 4101\nsome other line\nRANK=2\nand one more\n== 4102\nRANK=3\nthe third\n",
        "RANK=2\nLOCAL_RANK=0\nWORLD_SIZE=4\n",
    ],
)
def test_environments_that_tell_nothing_of_a_process(tmp_path: Path, text: str) -> None:
    stack = {"py-spy.4101.txt": STACK.format(pid=4101, inner=WAITS)}
    assert ranks_of_stacks(case_of(tmp_path, {"env.txt": text, **stack})) == {4101: None}


def test_the_environment_above_a_dump(tmp_path: Path) -> None:
    text = "RANK=9 LOCAL_RANK=1\n" + STACK.format(pid=4101, inner=WAITS)
    assert ranks_of_stacks(case_of(tmp_path, {"node-1_a.txt": text})) == {4101: 9}
    other = case_of(tmp_path / "b", {"x.txt": "LOCAL_RANK=1\n" + STACK.format(pid=4101, inner=WAITS)})
    assert ranks_of_stacks(other) == {4101: None}


PS = "{pid} {state}l   {wchan}   06:11:40 python -u train.py {args}\n"


@pytest.mark.parametrize(
    ("command", "args", "hosts", "expected"),
    [
        (
            "[root@n-2 ~]# ps -eo pid,stat,wchan:20,etime,args | grep [t]rain",
            "--local_rank={local}",
            "n-1 slots=8\nn-2 slots=8\n",
            8,
        ),
        ("[root@n-2 ~]# ps -eo pid,stat,wchan:20,etime,args | grep [t]rain", "--local_rank={local}", None, None),
        ("    PID STAT WCHAN      ELAPSED COMMAND", "--node_rank 5 --local_rank {local} --nproc_per_node 8", None, 40),
        ("    PID STAT WCHAN      ELAPSED COMMAND", "--node_rank 5 --local_rank {local}", None, None),
    ],
)
def test_commands_in_a_table_of_processes(
    tmp_path: Path, command: str, args: str, hosts: str | None, expected: int | None
) -> None:
    rows = "".join(PS.format(pid=4100 + n, state="R", wchan="-", args=args.format(local=n)) for n in range(8))
    files = {"ps.txt": f"{command}\n{rows}", **({"hostfile": hosts} if hosts else {})}
    stack = {"n-2_pid4103.txt": STACK.format(pid=4103, inner=WAITS)}
    assert ranks_of_stacks(case_of(tmp_path, {**files, **stack})) == {4103: None if expected is None else expected + 3}


LIGHTNING = (
    "Epoch 3:  41%|####      | 812/1980 [10:11<14:40,  1.33it/s]\n"
    "[rank: 0] Child process with PID 4102 terminated with code -11. Forcefully terminating all other processes\n"
)


@pytest.mark.parametrize(("place", "expected"), [("NODE_RANK=0", {2}), ("NODE_RANK=1", set()), ("", set()), ("RANK={}", {2})])
def test_the_end_of_a_process_whose_rank_its_environment_shows(tmp_path: Path, place: str, expected: set[int]) -> None:
    rows = "".join(
        PS.format(pid=4100 + n, state="R", wchan="-", args=f"LOCAL_RANK={n} {place.format(n)} WORLD_SIZE=16") for n in (1, 2, 3)
    )
    case_of(tmp_path, {"ps.txt": f"    PID STAT WCHAN      ELAPSED COMMAND\n{rows}", "fit.log": LIGHTNING})
    assert named(verdict_of(tmp_path)) == expected


def test_the_order_of_nodes_counts_their_slots(tmp_path: Path) -> None:
    rows = "".join(PS.format(pid=4100 + n, state="R", wchan="-", args=f"--local_rank={n}") for n in range(2))
    ps = f"[root@n-3 ~]# ps -eo pid,stat,wchan:20,etime,args\n{rows}"
    stack = STACK.format(pid=4101, inner=WAITS)
    files = {"hosts": "n-1 slots=4\nn-2 slots=8\nn-3 slots=2\n", "ps.txt": ps, "n-3.txt": stack}
    assert ranks_of_stacks(case_of(tmp_path, files)) == {4101: 13}


@pytest.mark.parametrize(("host", "rank"), [("n-2", 3), ("n-1", None), (None, None)])
def test_a_kill_in_the_kernel_log_of_the_host_that_nccl_names(tmp_path: Path, host: str | None, rank: int | None) -> None:
    """The number of a process is of its host: on another one, and where several hosts are known, it proves nothing."""
    files = {f"nccl.{r // 2}.{4100 + r}": nccl(f"n-{r // 2 + 1}", 4100 + r, r, 4) for r in range(4)}
    files |= {f"rank{r}.log": WATCHDOG.format(rank=r) for r in (0, 1)}
    stamp = "[Tue Sep  3 05:38:02 2024] "
    prompt = f"[{host}]$ dmesg -T\n" if host else ""
    files["dmesg.txt"] = prompt + (
        f"{stamp}oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),global_oom,task=python,pid=4103,uid=7\n"
        f"{stamp}Out of memory: Killed process 4103 (python) total-vm:9kB, anon-rss:8kB\n"
    )
    case_of(tmp_path, files).close()
    verdict = verdict_of(tmp_path)
    assert (named(verdict) == {3}) is (rank == 3)
    assert all(suspect.rules != ("FX101",) for suspect in verdict.suspects) is (rank is None)


def test_numbers_in_a_group_of_some_ranks_are_no_ranks(tmp_path: Path) -> None:
    files = {f"nccl.{4100 + r}": nccl("n-1", 4100 + r, r, 4) for r in range(4)}
    files |= {"train.log": "using world size: 8, data-parallel size: 2\n"}
    stack = {"n-1.txt": STACK.format(pid=4103, inner=WAITS)}
    assert ranks_of_stacks(case_of(tmp_path, {**files, **stack})) == {4103: None}


@pytest.mark.parametrize(
    ("hosts", "path", "expected"),
    [
        (("gpu-r04-n11", "gpu-r04-n12"), "n12_dmesg.txt", "gpu-r04-n12"),
        (("gpu-r04-n11", "gpu-r05-n11"), "n11_dmesg.txt", None),
        (("job-worker-1", "job-worker-10"), "pyspy_job-worker-10_0231.txt", "job-worker-10"),
        (("job-worker-1", "job-worker-10"), "pyspy_job-worker-1.txt", "job-worker-1"),
        (("gx01", "gx02"), "ds_gx02.log", "gx02"),
        (("gx01", "gx02"), "gx01_to_gx02.log", None),
        (("gx01", "gx02"), "gx013.log", None),
    ],
)
def test_files_are_of_the_host_that_they_are_called_by(
    tmp_path: Path, hosts: tuple[str, ...], path: str, expected: str | None
) -> None:
    files = {f"nccl.{place}": nccl(host, 4100 + place, place, len(hosts)) for place, host in enumerate(hosts)}
    connection = case_of(
        tmp_path, {**files, path: "[Tue Jun 11 02:54:49 2024] INFO: task python:77 blocked for more than 120 s.\n"}
    )
    ((host,),) = connection.execute("SELECT host FROM sources WHERE path = ?", [path]).fetchall()
    assert host == expected


@pytest.mark.parametrize(
    ("lines", "host"),
    [
        ("[root@mg-1 ~]# ps -eo pid\n", "mg-1"),
        ("(base) user@gpu01:~$ nvidia-smi\n", "gpu01"),
        ("loki:~ # ps -u ml\n", "loki"),
        ("[gpu-r04-n12]$ dmesg -T\n", "gpu-r04-n12"),
        ("[2025-07-01 04:05:10] node-20 $ ncclras -v\n", "node-20"),
        ("$ kubectl -n nlp exec sft-worker-3 -- py-spy dump --pid 27\n", "sft-worker-3"),
        ("$ kubectl --namespace=nlp exec -it --stdin -c main sft-worker-3 -- ps\n", "sft-worker-3"),
        (f"$ kubectl {'-a ' * 60}{'--a ' * 45}\n", None),
        (f"$ kubectl exec {'-it ' * 60}{'--it a=b ' * 15}!\n", None),
        ("$ ssh -p 22 root@node-4 'py-spy dump'\n", "node-4"),
        ("[root@a-1 ~]# ps\n[root@a-2 ~]# ps\n", None),
        ("[INFO] $ x\n[rank0]: x\n", None),
        ("user@localhost:~$ ps\n", None),
        ("Process 88: python\n", None),
    ],
)
def test_the_host_of_a_prompt(lines: str, host: str | None) -> None:
    assert prompt_host(lines.encode()) == host


def pods(rank: int = 4) -> dict[str, str]:
    """Logs of pods that state their ranks, and a stack that was taken in one of them."""
    logs = {f"job-worker-{n}.log": f"I0502 18:41:04 rank={n + 1} world_size=4 host=job-worker-{n}\n" for n in range(3)}
    stack = "$ kubectl exec job-worker-2 -- py-spy dump --pid 27\n" + STACK.format(pid=27, inner=WAITS)
    return {**logs, "stack.txt": stack}


def test_the_only_process_of_a_pod_is_the_rank_that_its_log_states(tmp_path: Path) -> None:
    assert ranks_of_stacks(case_of(tmp_path, pods())) == {27: 3}


def test_a_pod_with_another_process_or_another_rank_tells_nothing(tmp_path: Path) -> None:
    second = "$ kubectl exec job-worker-2 -- py-spy dump --pid 28\n" + STACK.format(pid=28, inner=WAITS)
    assert set(ranks_of_stacks(case_of(tmp_path / "a", {**pods(), "second.txt": second})).values()) == {None}
    other = {"x.log": "I0502 18:41:04 rank=0 world_size=4 host=job-worker-2\n"}
    assert set(ranks_of_stacks(case_of(tmp_path / "b", {**pods(), **other})).values()) == {None}


POD = """Name:             clip-{pod}-5-qd6fb
Namespace:        vision
Labels:           batch.kubernetes.io/job-completion-index=5
Status:           Failed
    State:          Terminated
      Reason:       OOMKilled
      Exit Code:    137
      Finished:     Mon, 10 Feb 2025 03:51:29 +0000
    Limits:
      nvidia.com/gpu:  {gpus}
    Environment:
      RANK:         {rank}
"""
BY_INDEX = "(v1:metadata.annotations['batch.kubernetes.io/job-completion-index'])"


@pytest.mark.parametrize(
    ("gpus", "rank", "expected"), [(1, BY_INDEX, {5}), (8, BY_INDEX, set()), (1, "(v1:metadata.name)", set())]
)
def test_the_index_of_a_pod_is_its_rank_where_its_description_says_so(
    tmp_path: Path, gpus: int, rank: str, expected: set[int]
) -> None:
    files = {"describe.txt": POD.format(pod="b16", gpus=gpus, rank=rank)}
    files |= {f"rank{r}.log": WATCHDOG.format(rank=r) for r in (0, 1, 3)}
    case_of(tmp_path, files).close()
    assert named(verdict_of(tmp_path)) == expected


LAUNCH = """[2025-09-13 05:11:01,120] [INFO] [launch.py:139:main] nnodes=2, num_local_procs=2, node_rank=1
[2025-09-13 05:11:01,130] [INFO] [launch.py:256:main] process 30114 spawned with command: ['python', '--local_rank=0']
[2025-09-13 05:11:01,131] [INFO] [launch.py:256:main] process 30117 spawned with command: ['python', '--local_rank=1']
"""


def test_a_launcher_tells_the_rank_of_the_process_that_the_driver_names(tmp_path: Path) -> None:
    xid = "Sep 13 07:52:21 gx02 kernel: NVRM: Xid (PCI:0000:ba:00): 119, pid=30117, name=python, Timeout\n"
    logs = "".join(WATCHDOG.format(rank=rank) for rank in (0, 1, 2))
    case_of(tmp_path, {"gx02.log": LAUNCH + logs, "gx02_journal.txt": xid}).close()
    verdict = verdict_of(tmp_path)
    assert named(verdict) == {3} and "FX147" in verdict.suspects[0].rules


SITE = "> site: rank {rank} tp={tp} pp=0 host=dgx-b0{node} pid={pid} dev=cuda:{tp}\n"


def test_lines_that_state_rank_process_and_host(tmp_path: Path) -> None:
    lines = "".join(SITE.format(rank=rank, tp=rank % 2, node=rank // 2, pid=4100 + rank % 2) for rank in range(4))
    stacks = {f"dgx-b0{node}_4101.txt": STACK.format(pid=4101, inner=WAITS) + "\n" * node for node in range(2)}
    found = case_of(tmp_path, {"run.log": lines, **stacks})
    assert found.execute("SELECT path, rank FROM sources WHERE rank IS NOT NULL ORDER BY ALL").fetchall() == [
        ("dgx-b00_4101.txt", 1),
        ("dgx-b01_4101.txt", 3),
    ]


@pytest.mark.parametrize(
    "lines",
    [
        "[local rank 1] pid 4101\n[local rank 2] pid 4102\n",
        "tp_rank=1 pid=4101\ntp_rank=2 pid=4102\n",
        "rank 1 lost the connection to pid 4101 of rank 2\nrank 2 lost the connection to pid 4102 of rank 1\n",
        "rank 1 pid 4101\nrank 1 pid 4102\n",
        "rank 1 pid 4101\n",
    ],
)
def test_lines_that_state_another_rank_or_several(tmp_path: Path, lines: str) -> None:
    assert ranks_of_stacks(case_of(tmp_path, {"run.log": lines, "s.txt": STACK.format(pid=4101, inner=WAITS)})) == {4101: None}


MAPPED = (
    "worker-{node}: [2025-05-17 21:02:13,838] [INFO] [launch.py:163:main] global_rank_mapping=defaultdict(<class 'list'>, "
    "{{'worker-1': [0, 1], 'worker-2': [2, 3]}})\n"
    "worker-{node}: [2025-05-17 21:02:14,590] [INFO] [launch.py:256:main] process {pid} spawned with command: "
    "['python', '--local_rank=1', '-x']\n"
)


def test_a_launcher_of_several_nodes_in_one_log(tmp_path: Path) -> None:
    log = MAPPED.format(node=1, pid=11871) + MAPPED.format(node=2, pid=20333)
    stack = STACK.format(pid=20333, inner=WAITS)
    assert ranks_of_stacks(case_of(tmp_path, {"run.log": log, "worker-2.txt": stack})) == {20333: 3}


def test_environments_below_the_names_of_hosts(tmp_path: Path) -> None:
    text = (
        "n-7:\n4101 RANK=1 LOCAL_RANK=1\n4100 RANK=0 LOCAL_RANK=0\nn-8:\n4101 RANK=3 LOCAL_RANK=1\n4100 RANK=2 LOCAL_RANK=0\n"
    )
    stack = {f"n-{n}_a.txt": STACK.format(pid=4101, inner=WAITS) + "\n" * n for n in (7, 8)}
    found = case_of(tmp_path, {"who_is_who.txt": text, **stack})
    assert found.execute("SELECT path, rank FROM sources WHERE kind = 'python_stacks' ORDER BY ALL").fetchall() == [
        ("n-7_a.txt", 1),
        ("n-8_a.txt", 3),
    ]


@pytest.mark.parametrize(("known", "expected"), [((0, 1, 2, 3, 4, 5, 7), 6), ((0, 1, 2, 3, 4, 7), None), ((4, 5, 7), None)])
def test_the_one_process_of_a_host_that_nothing_names(tmp_path: Path, known: tuple[int, ...], expected: int | None) -> None:
    """Its peers have the ranks of the host but one, and another host shows how many that are."""
    files = {f"nccl.{rank}": nccl(f"n-{rank // 4}", 4100 + rank, rank, 8) for rank in known}
    stack = {"n-1_a.txt": STACK.format(pid=4106, inner=WAITS)}
    assert ranks_of_stacks(case_of(tmp_path, {**files, **stack})) == {4106: expected}


def test_a_number_in_the_name_of_a_file_of_several_processes_is_no_rank(tmp_path: Path) -> None:
    text = "".join(STACK.format(pid=pid, inner=WAITS) for pid in (4101, 4102))
    assert ranks_of_stacks(case_of(tmp_path, {"stacks_3.txt": text, "stacks_4.txt": text})) == {4101: 0, 4102: 1}


def test_the_ranks_of_a_node_that_a_scheduler_lost(tmp_path: Path) -> None:
    job = "".join(f"{n}: bp-20{n} node_rank={n} world=6 ranks {2 * n}..{2 * n + 1}\n" for n in range(3))
    daemon = (
        "[2025-01-28T01:05:43.001] error: Nodes bp-201 not responding\n"
        "[2025-01-28T01:15:40.112] error: Nodes bp-201 not responding, setting DOWN\n"
    )
    case_of(tmp_path, {"slurm-9123.out": job, "slurmctld.log": daemon}).close()
    assert named(verdict_of(tmp_path)) == {2, 3}


def test_the_kernel_of_each_node_behind_its_name(tmp_path: Path) -> None:
    files = {f"nccl.{rank}": nccl(f"gpu-a1{rank // 2}", 4100 + rank, rank, 4) for rank in range(4)}
    kernel = (
        "gpu-a11: [Thu Feb 20 04:17:52 2025] NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU is gone.\n"
    )
    logs = "".join(WATCHDOG.format(rank=rank) for rank in range(3))
    case_of(tmp_path, {**files, "clush.txt": kernel, "slurm.out": logs}).close()
    assert named(verdict_of(tmp_path)) == {3}


AGENT = "E1002 21:56:10.46 90 torch/elastic/api.py:869] failed (exitcode: {code}) local_rank: {local} (pid: 114)\n"


def test_the_node_of_a_pod_and_the_number_of_a_process_there(tmp_path: Path) -> None:
    """The training operator tells torchrun its node; the log of the pod knows local ranks only."""
    pod = "Name:             segm-worker-2\nNamespace:        p\nStatus:           Failed\n    Environment:\n"
    pod += "      PET_NPROC_PER_NODE:  8\n      PET_NODE_RANK:       3\n"
    found = case_of(tmp_path, {"describe.txt": pod, "segm-worker-2.txt": AGENT.format(code=1, local=2)})
    assert found.execute("SELECT rank FROM log_events WHERE kind = 'process_exit'").fetchall() == [(26,)]


def test_a_number_in_the_name_of_a_log_of_several_ranks_is_no_rank(tmp_path: Path) -> None:
    log = "[rank3]: RuntimeError: x\n[rank5]: RuntimeError: x\n" + AGENT.format(code=-6, local=4)
    names = {f"segm-master-{n}.txt": log.replace("3", str(3 + n)) for n in (0, 1)}
    found = case_of(tmp_path, names)
    assert found.execute("SELECT DISTINCT rank FROM log_events WHERE kind = 'process_exit'").fetchall() == [(None,)]


@pytest.mark.parametrize(("devices", "expected"), [("1", 4), ("8", None)])
def test_the_rank_that_the_environment_of_a_pod_states(tmp_path: Path, devices: str, expected: int | None) -> None:
    """The master is rank 0, so that a worker is not what its name counts; of several processes it may be that of any."""
    pod = "Name:             bert-worker-3\nNamespace:        p\nStatus:           Failed\nContainers:\n  pytorch:\n"
    pod += "    State:          Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n"
    pod += f"    Limits:\n      nvidia.com/gpu:  {devices}\n    Environment:\n      RANK:              4\n"
    found = case_of(tmp_path, {"describe.txt": pod})
    assert found.execute("SELECT rank FROM log_events WHERE kind = 'process_exit'").fetchall() == [(expected,)]


def test_the_environment_in_front_of_a_command_that_a_signal_ended(tmp_path: Path) -> None:
    line = "bash: line 1: 20811 Segmentation fault      (core dumped) RANK=0 WORLD_SIZE=4 LOCAL_RANK=3 python3 train.py\n"
    found = case_of(tmp_path, {"w11.log": "07:17:07 r0 batch 351 auc 0.72\n" + line})
    assert found.execute("SELECT pid, rank, method FROM process_ranks").fetchall() == [(20811, 0, "command")]
