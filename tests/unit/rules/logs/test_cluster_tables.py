"""What clusters and their monitors say of nodes and devices: one that stands out is where to begin, and nobody is accused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.recordings.verdicts import named, verdict_of

NODE = (
    "Name:               pool-a-{0}\nRoles:              <none>\nTaints:             <none>\nConditions:\n"
    "  Type                 Status  LastHeartbeatTime                 Reason              Message\n"
    "  MemoryPressure       False   Tue, 11 Nov 2025 20:00:40 +0000   KubeletHasMemory    kubelet has memory\n"
    "  Ready                True    Tue, 11 Nov 2025 20:00:40 +0000   KubeletReady        kubelet is ready\n{1}"
)
CONDITION = "  {0:20} {1:7} Tue, 11 Nov 2025 20:00:40 +0000   Reason              text of the monitor\n"
SLURM = (
    "[2025-06-21T04:10:02.114] sched: Allocate JobId=88 NodeList={0} #CPUs=768 Partition=train\n"
    "[2025-06-21T07:45:10.511] error: Nodes gx-7 not responding\n"
    "[2025-06-21T07:49:33.870] error: Node gx-7 not responding, setting DOWN\n"
    "[2025-06-21T07:49:33.871] _job_complete: JobId=88 {1}\n"
)
AGAIN = "[2025-06-21T09:49:33.870] sched: Allocate JobId=91 NodeList=gx-[6-7] #CPUs=192 Partition=train\n"
HEALTH = "[1022311.004821] mlx5_core 0000:9a:00.{0}: {1}\n"
NPU = "| {0}     910B3               | {1:13} | 101.2       45                0    / 0             |\n"


def events(*rows: tuple[str, str, str, str]) -> str:
    """As `kubectl get events -o json` prints them: time, reason, kind and name of the object."""
    items = [
        {"kind": "Event", "lastTimestamp": at, "reason": reason, "type": "Normal", "message": "told", "involvedObject": about}
        for at, reason, *place in rows
        for about in [dict(zip(("kind", "name"), place, strict=True))]
    ]
    return json.dumps({"apiVersion": "v1", "items": items, "kind": "List"}, indent=4)


def alerts(*each: tuple[str, Mapping[str, str]]) -> str:
    sent = [{"status": state, "labels": {"alertname": "GPU Xid", **labels}} for state, labels in each]
    return json.dumps({"receiver": "on-call", "status": "firing", "alerts": sent}, indent=2)


def processes(*states: str) -> str:
    rows = (f"{700 + at} {state:5}{'folio_wait_bit' if state == 'D' else '-':20} python\n" for at, state in enumerate(states))
    return "  PID STAT WCHAN               COMMAND\n" + "".join(rows)


def pairs(slow: str, form: str = "{0} <-> {1}: {2} GB/s\n", hosts: int = 5) -> str:
    names = [f"hx-{number}" for number in range(hosts)]
    rates = [(one, two, 171 if slow in (one, two) else 366) for at, one in enumerate(names) for two in names[at + 1 :]]
    return "".join(form.format(one, two, rate + at / 10) for at, (one, two, rate) in enumerate(rates))


def gpustat(idle: int | None, fans: str = "") -> str:
    head = "hx-9                          Thu Jun  5 04:11:20 2025  550.90.07\n"
    return head + "".join(
        f"[{at}] NVIDIA H100 80GB HBM3 | 4{at}°C,{fans} {0 if at == idle else 100:3d} %,  188 / 700 W | 71112 / 81559 MB |"
        f" u:python/4{at}(7G)\n"
        for at in range(4)
    )


def links(down: int | None, off: int | None = None) -> str:
    """What `rdma link show` prints of eight ports, of which an operator may have switched one off."""
    states = {down: "DOWN physical_state POLLING", off: "DOWN physical_state DISABLED"}
    return "".join(
        f"link mlx5_{at}/1 state {states.get(at, 'ACTIVE physical_state LINK_UP')} netdev ens{at}np0\n" for at in range(8)
    )


def interfaces(down: tuple[str, int] | None) -> str:
    """`pdsh -w hx-[1-3] ibdev2netdev`."""
    places = [(f"hx-{host}", at) for host in (1, 2, 3) for at in range(3)]
    return "".join(f"{host}: mlx5_{at} port 1 ==> ibs{at} ({'Down' if (host, at) == down else 'Up'})\n" for host, at in places)


def listing(state: str, reason: str) -> str:
    head = "$ sinfo -N -l\nNODELIST   NODES PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON\n"
    row = "gx-{0}           1    train* {1:>11} 192    2:48:2 206400        0      1   (null) {2}\n"
    return head + row.format(4, "allocated", "none") + row.format(5, state, reason)


def checks(*impaired: int) -> str:
    each = [
        {"InstanceId": f"i-0a{at}", "InstanceStatus": {"Status": "impaired" if at in impaired else "ok"}} for at in range(4)
    ]
    return json.dumps({"InstanceStatuses": each}, indent=2)


def steps_of(ranks: int, behind: int | None, form: str) -> str:
    """A table of the step that each rank is at, in one of the forms of tickets."""
    head, row = {
        "markdown": ("| rank | host | last step |\n|---:|---|---:|\n", "| {0} | b1 | {1} |\n"),
        "csv": ("rank,host,global_step\n", "{0},b1,{1}\n"),
        "columns": ("Rank    Host    Step\n", "{0}       b1      {1}\n"),
    }[form]
    return "Status\n\n" + head + "".join(row.format(rank, 1199 if rank == behind else 1200) for rank in range(ranks))


def members(*numbers: int, size: int = 4) -> str:
    return "".join(f"Initializing distributed: GLOBAL_RANK: {each}, MEMBER: {each + 1}/{size}\n" for each in numbers)


def kernel_stacks(*waiting: int) -> str:
    """Of four ranks, as somebody prints them one after the other."""
    storage, futex = "rpc_wait_bit_killable+0x24/0xa0 [sunrpc]", "futex_wait_queue+0x60/0x90"
    return "".join(
        f"[root@hx-1 ~]# cat /proc/{2100 + rank}/stack   # rank {rank}\n[<0>] {storage if rank in waiting else futex}\n"
        f"[<0>] do_syscall_64+0x5b/0x80\n\n"
        for rank in range(4)
    )


QUEUE = (
    "$ squeue -j 88\n             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n"
    "                88     train      pre      ann  R   10:11:12      2 gx-[3-4]\n"
)
LOST = ("2025-08-02T15:01:55Z", "NodeNotReady", "Node", "pool-a-3")
STARTED = ("2025-08-02T10:11:12Z", "Started", "Pod", "pre-2")
XID = ("firing", {"Hostname": "hx-4", "gpu": "3"})


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("node.txt", NODE.format(1, CONDITION.format("XidCriticalError", "True")), "node pool-a-1, and which ranks"),
        ("node.txt", NODE.format(1, CONDITION.format("AcceleratedHardwareReady", "False")), "node pool-a-1, and which ranks"),
        ("slurmctld.log", SLURM.format("gx-[3-10]", "WTERMSIG 9"), "kernel log of node gx-7"),
        ("events.json", events(STARTED, LOST), "node pool-a-3, and which pods"),
        ("dmesg.txt", HEALTH.format(0, "poll_health:831:(pid 0): Fatal error 3 detected"), "the NIC 0000:9a:00.0"),
        ("npu.txt", "".join(NPU.format(at, "Alarm" if at == 5 else "OK") for at in range(8)), "NPU 5 and the rank on it"),
        ("links.txt", "link status: UP\nlink status: DOWN\nlink status: UP\n", "the link of an NPU"),
        ("alert.json", alerts(XID), "device 3 of hx-4 and the ranks there: alerts fire of it (GPU_Xid;"),
        ("alert.json", alerts(XID, ("firing", {"instance": "hx-4:9100"})), "hx-4 and the ranks there"),
        ("ps.txt", processes("R", "R", "D", "R"), "what process 702 waits for in the kernel"),
        ("ticket.md", steps_of(8, 5, "markdown"), "stack and log of rank 5: a table has it at step 1199, the 7 others at 1200"),
        ("ticket.txt", steps_of(8, 0, "csv"), "stack and log of rank 0"),
        ("ticket.txt", steps_of(4, 3, "columns"), "stack and log of rank 3"),
        ("fit.log", members(0, 1, 1, 3), "2 of 4 processes say that they are rank 1"),
        ("kernel.txt", kernel_stacks(3), "what process 2103 of rank 3 waits for in the kernel"),
        ("gpustat.txt", gpustat(2), "GPU-2 of hx-9, which is idle while 3 others are busy"),
        ("gpustat.txt", gpustat(2, "  30 %,"), "GPU-2 of hx-9, which is idle while 3 others are busy"),
        ("rdma.txt", links(3), "mlx5_3/1 of its host, cable and switch port"),
        ("netdev.txt", interfaces(("hx-2", 1)), "mlx5_1/1 of hx-2, cable and switch port"),
        ("nodes.txt", listing("down*", "Not responding"), "kernel log of node gx-5"),
        ("nodes.txt", QUEUE.replace("[3-4]", "[3-8]") + listing("down*", "Not responding"), "kernel log of node gx-5"),
        ("status.json", checks(2), "i-0a2 and the ranks there"),
        ("pairs.txt", pairs("hx-3"), "NICs, cables and GPUs of hx-3: a test of pairs of hosts reached 171.9 GB/s at most"),
        ("pairs.txt", pairs("hx-0", "| {0} | {1} | {2} Gb/s |\n"), "NICs, cables and GPUs of hx-0"),
        ("pairs.csv.txt", pairs("hx-1", "{0},{1},{2} Gbps\n"), "NICs, cables and GPUs of hx-1"),
    ],
)
def test_the_one_that_stands_out(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    verdict = verdict_of(tmp_path)
    assert not named(verdict)
    assert said in verdict.leads[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("node.txt", NODE.format(1, CONDITION.format("XidCriticalError", "False")), id="no trouble"),
        pytest.param("node.txt", NODE.format(1, CONDITION.format("GpuHealthy", "True")), id="in order"),
        pytest.param(
            "nodes.txt", "".join(NODE.format(at, CONDITION.format("XidCriticalError", "True")) for at in (1, 2)), id="two nodes"
        ),
        pytest.param("slurmctld.log", SLURM.format("gx-[3-6]", "WTERMSIG 9"), id="a node of another job"),
        pytest.param("slurmctld.log", SLURM.format("gx-[3-10]", "WEXITSTATUS 0"), id="a job that ended well"),
        pytest.param("slurmctld.log", SLURM.format("gx-[3-10]", "WTERMSIG 9") + AGAIN, id="a node that a later job was given"),
        pytest.param(
            "events.json", events(STARTED, LOST, ("2025-08-02T15:05:00Z", "NodeReady", "Node", "pool-a-3")), id="back"
        ),
        pytest.param("events.json", events(LOST, ("2025-08-02T15:05:00Z", "NodeNotReady", "Node", "pool-a-4")), id="two lost"),
        pytest.param("npu.txt", "".join(NPU.format(at, "OK") for at in range(8)), id="all NPUs in order"),
        pytest.param("npu.txt", "".join(NPU.format(at, "Alarm") for at in range(8)), id="all NPUs alike"),
        pytest.param("links.txt", "link status: DOWN\nlink status: DOWN\n", id="two links"),
        pytest.param("alert.json", alerts(("resolved", XID[1])), id="over"),
        pytest.param("alert.json", alerts(XID, ("firing", {"Hostname": "hx-5", "gpu": "3"})), id="two hosts"),
        pytest.param(
            "alert.json", alerts(("firing", {"instance": "hx-4:9100", "alertname": "HostHighCpuLoad"})), id="of no device"
        ),
        pytest.param("ticket.md", steps_of(8, None, "markdown"), id="all ranks at one step"),
        pytest.param("ticket.md", steps_of(2, 1, "markdown"), id="two ranks"),
        pytest.param("ticket.md", steps_of(4, 3, "csv").replace("\n2,b1,1200", "\n2,b1,1198"), id="two ranks behind"),
        pytest.param("ticket.md", steps_of(5, 3, "csv").replace("\n1,b1,1200", ""), id="a rank that the table lacks"),
        pytest.param("fit.log", members(0, 1, 2, 3), id="all numbers once"),
        pytest.param("fit.log", members(0, 1, 2, 3, 0, 1, 2, 3), id="started again"),
        pytest.param("fit.log", members(0, 1, 1), id="a process of which nothing is known"),
        pytest.param("kernel.txt", kernel_stacks(0, 1, 2, 3), id="all wait for storage"),
        pytest.param("kernel.txt", kernel_stacks(), id="nobody waits for storage"),
        pytest.param("gpustat.txt", gpustat(None), id="all GPUs busy"),
        pytest.param("rdma.txt", links(None), id="all ports up"),
        pytest.param("rdma.txt", links(None, 7), id="a port that is switched off"),
        pytest.param("netdev.txt", interfaces(None), id="all interfaces up"),
        pytest.param("nodes.txt", listing("draining", "kernel update"), id="a node that is set aside"),
        pytest.param("nodes.txt", QUEUE + listing("down*", "Not responding"), id="a node of none of the jobs that are listed"),
        pytest.param("status.json", checks(), id="all instances in order"),
        pytest.param("status.json", checks(0, 2), id="two instances"),
        pytest.param("ps.txt", processes("R", "R", "D", "R").replace("python", "[nfsd]"), id="threads of the kernel"),
        pytest.param("ps.txt", processes("R", "R", "R", "R"), id="nobody sleeps"),
        pytest.param("ps.txt", processes("D", "R", "D", "R"), id="two sleep"),
        pytest.param("pairs.txt", "[rank0]: step 4 loss 2.1\n" + pairs("none"), id="all pairs alike"),
        pytest.param("pairs.txt", "[rank0]: step 4 loss 2.1\n" + pairs("hx-1", hosts=3), id="three hosts"),
    ],
)
def test_several_or_what_is_in_order_is_no_lead(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "job.log").write_text("".join(f"[rank0]: step {at}/900 loss 2.{at}\n" for at in range(40, 50)))
    verdict = verdict_of(tmp_path)
    assert not named(verdict)
    assert not verdict.leads


def test_a_condition_of_a_node_without_pods_of_the_job_is_no_lead(tmp_path: Path) -> None:
    (tmp_path / "node.txt").write_text(NODE.format(1, CONDITION.format("XidCriticalError", "True")))
    head = "NAME      READY   STATUS    RESTARTS   AGE   IP           NODE       NOMINATED NODE   READINESS GATES\n"
    row = "pre-{0}     1/1     Running   0          2d    10.1.0.{0}     pool-a-{0}   <none>           <none>\n"
    (tmp_path / "pods.txt").write_text(head + "".join(row.format(at) for at in (3, 4)))
    assert not verdict_of(tmp_path).leads
    (tmp_path / "pods.txt").write_text(head + "".join(row.format(at) for at in (1, 4)))
    assert "node pool-a-1" in verdict_of(tmp_path).leads[0]
