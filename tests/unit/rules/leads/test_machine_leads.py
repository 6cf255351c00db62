"""What commands for one kind of machine tell of one GPU, NIC or node: where to begin, and nothing where several are alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.recordings.verdicts import verdict_of

STEPS = "".join(f"2026-03-02 03:13:{at:02d},113 - INFO - step {at}/9000 | loss 2.{at}\n" for at in range(20, 40))
QUEUE = (
    "$ squeue -j 88\n             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n"
    "                88     train      pre      ann  R   10:11:12      4 gx-[3-6]\n"
)
WAITS = "                89     train     next      ann PD       0:00      4 (Resources)\n"
SHOWN = "$ scontrol show job 88\nJobId=88 JobName=pre\n   NodeList=gx-[3-6]\n   BatchHost=gx-3\n"
REASONS = "$ sinfo -R\nREASON               USER      TIMESTAMP           NODELIST\n"
SHELL = "flux-job: job.exception type=node-failure severity=2 lost contact with job shell on {0} (shell rank 2)\n"
PYXIS = "slurmstepd-{0}: error: pyxis: container start failed with error code: 1\n"


def down(*nodes: str, when: str = "2026-03-02T03:13:50", reason: str = "Not responding") -> str:
    return REASONS + "".join(f"{reason:20} slurm     {when} {node}\n" for node in nodes)


def amd(*errors: int) -> str:
    """`amd-smi metric --ecc`."""
    row = "GPU: {0}\n    ECC:\n        TOTAL_CORRECTABLE_COUNT: 3\n        TOTAL_UNCORRECTABLE_COUNT: {1}\n\n"
    return "$ amd-smi metric --ecc\n" + "".join(row.format(*each) for each in enumerate(errors))


def watched(*used: int) -> str:
    """`amd-smi monitor -put`."""
    head = "GPU  POWER  PWR_CAP   GPU_T   MEM_T   GFX_CLK   GFX%   MEM%  MEM_CLOCK\n"
    row = "  {0}  251 W   1000 W   55 \u00b0C   43 \u00b0C   {2} MHz    {1} %    0 %   1900 MHz\n"
    return head + "".join(row.format(at, use, 2100 if use else 144) for at, use in enumerate(used))


def links(*up: int) -> str:
    """`nvidia-smi nvlink -s`, with four links a GPU."""
    states = ("<inactive>", "26.562 GB/s")
    rows = ("".join(f"\t Link {link}: {states[link < each]}\n" for link in range(4)) for each in up)
    return "".join(f"GPU {at}: NVIDIA H100 80GB HBM3 (UUID: GPU-1{at}-aa)\n{row}" for at, row in enumerate(rows))


def fabric(*errors: int) -> str:
    """`ibqueryerrors`: a switch, and the NICs of hosts that are linked to it."""
    nic = (
        'Errors for "hx-{0} mlx5_3"\n   GUID 0x946dae0300fa8e6{0} port 1: [SymbolErrorCounter == {1}] [PortXmitWait == 4101]\n'
    )
    return (
        'Errors for 0xb83fd20300a1c210 "MF0;leaf-3:MQM9700/U1"\n   GUID 0xb83fd20300a1c2 port ALL: [SymbolErrorCounter == 90]\n'
        + "".join(nic.format(at, each) for at, each in enumerate(errors))
        + "\n## Summary: 64 nodes checked, 2 bad\n##          530 ports checked, 2 ports have errors beyond threshold\n"
    )


def taken(*machines: str, when: str = "2026-03-02T03:14:02.881+00:00") -> str:
    """`gcloud compute operations list`."""
    head = "NAME               TYPE                         TARGET                           HTTP_STATUS  STATUS  TIMESTAMP\n"
    row = "systemevent-1-{0}  compute.instances.hostError  us-central1-a/instances/{0}  200          DONE    {1}\n"
    return head + "".join(row.format(each, when) for each in machines)


def scheduled(status: str, how: str = "Reboot") -> str:
    event = {"EventId": "C7", "EventStatus": status, "EventType": how, "Resources": ["vm_3"], "EventSource": "Platform"}
    return json.dumps({"DocumentIncarnation": 12, "Events": [event]})


EDAC = "EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x3f21a87)"
RESTARTED = (
    "5m    Warning   PyTorchJobRestarting   pytorchjob/pre   PyTorchJob pre is restarting because 1 Worker replica(s) failed.\n"
)
BY_PBS = "$ qstat -f 7\nJob Id: 7.pbs\n    Job_Name = pre\n    exec_host = gx-3/0*64+gx-4/0*64+gx-5/0*64\n"
BY_LSF = (
    "$ bjobs -l 8\n\nJob <8>, Job Name <pre>, User <ann>\nMon: Started 24 Task(s) on Host(s) <8*gx-3> <8*gx-5>, Allocated\n"
)
TIMEOUT = "mlx5_core 0000:9a:00.0: wait_func:1157:(pid 41): ACCESS_REG(0x805) timeout. Will cause a leak of a command resource"
EVENTS = (
    "LAST SEEN   TYPE     REASON           OBJECT           MESSAGE\n"
    + "5m    Normal   ExitedWithCode   pytorchjob/pre   {0}\n"
)


def listed(host: str, state: str) -> str:
    return f"$ pbsnodes -l\n{host}                 {state}\n"


def hosts(state: str) -> str:
    head = "$ bhosts\nHOST_NAME          STATUS       JL/U    MAX  NJOBS    RUN  SSUSP  USUSP    RSV\n"
    row = "gx-{0}               {1:12} -      8      8      8      0      0      0\n"
    return head + row.format(3, "closed") + row.format(5, state)


def containers(*states: str, image: str = "pre:4") -> str:
    """`docker ps -a`, with another image in its last row."""
    row = "{0:15}{1:13}{2:26}{3}\n"
    rows = [("4c01ab77de0" + str(at), image, state, f"trainer-{at}") for at, state in enumerate(states)]
    rows.append(("77de014c01ab", "nginx:1.25", "Exited (137) 1 minute ago", "web"))
    return row.format("CONTAINER ID", "IMAGE", "STATUS", "NAMES") + "".join(row.format(*each) for each in rows)


def alert(state: str, *hosts: str, name: str = "GpuXidError", of: str = "gpu = 5\n") -> str:
    """A mail of Alertmanager's."""
    row = f"[1] {state}\nLabels\nalertname = {name}\n{of}instance = {{0}}:9400\nAnnotations\nsummary = XID 79\n\n"
    return "".join(row.format(host) for host in hosts)


def uncorrected(*hosts: str) -> str:
    return "".join(f"Mar  2 03:14:01 {host} kernel: [781999.102] {EDAC}\n" for host in hosts)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            QUEUE + down("gx-5", "gx-11") + "$ tail job.out\n" + STEPS,
            "node gx-5, and which ranks ran there: its scheduler lists it",
        ),
        (down("gx-5") + SHOWN + "$ tail job.out\n" + STEPS, "node gx-5, and which ranks ran there: its scheduler lists it"),
        (amd(0, 0, 17, 0), "GPU-2, and the rank on it: uncorrected memory errors since its driver was loaded: 17"),
        (amd(0, 0, 17, 0) + STEPS, "GPU-2, and the rank on it"),
        ("[root@mi-1 ~]# amd-smi monitor\n" + watched(100, 0, 100, 100), None),
        (links(4, 4, 1, 4), "NVLinks of GPU-2, and the rank on it: 1 of them are up"),
        (fabric(2, 38007), "mlx5_3/1 of hx-1, cable and switch port: 38007 symbol_error"),
        (fabric(38007), "mlx5_3/1 of hx-0, cable and switch port"),
        (STEPS + taken("node-5"), "whether node-5 is back, and which ranks ran there: its cloud reports the event hostError"),
        (scheduled("Started"), "whether vm_3 is back, and which ranks ran there: its cloud reports the event Reboot"),
        (STEPS + SHELL.format("el12"), "console and kernel log of el12, which was lost"),
        (STEPS + PYXIS.format("gx-6"), "container runtime of gx-6: pyxis could start no container there"),
        (BY_PBS + listed("gx-5", "down") + "$ tail job.out\n" + STEPS, "node gx-5, and which ranks ran there: its scheduler"),
        (BY_LSF + hosts("unavail") + "$ tail job.out\n" + STEPS, "node gx-5, and which ranks ran there: its scheduler"),
        (containers("Up 9 hours", "Exited (137) 3 minutes ago", "Up 9 hours (healthy)"), "the log of container trainer-1"),
        (EVENTS.format("Pod: ml.pre-worker-2 exited with code 137"), "the log of pod pre-worker-2"),
        (f"[Mon Mar  2 03:14:02 2026] {TIMEOUT}\n", "the NIC 0000:9a:00.0 and the ranks that use it: its firmware"),
        (alert("Firing", "gx-6"), "device 5 of gx-6 and the ranks there: alerts fire of it (GpuXidError"),
        (alert("Firing", "gx-6", of="UUID = GPU-7f\n"), "device GPU-7f of gx-6 and the ranks there: alerts fire of it (GpuXid"),
        ("[root@mi-1 ~]# " + amd(0, 0, 0, 0)[2:] + "[root@mi-2 ~]# " + amd(0, 9, 0, 0)[2:], "GPU-1 of mi-2, and the rank"),
        ("[root@h1 ~]# x\n" + links(4, 4, 4) + "[root@h2 ~]# x\n" + links(4, 1, 4), "NVLinks of GPU-1 of h2, and the"),
        (QUEUE + WAITS + down("gx-5") + "$ tail job.out\n" + STEPS, "node gx-5, and which ranks ran there"),
        (uncorrected("gx-6"), "memory and kernel log of gx-6, and the ranks there"),
    ],
)
def test_the_one_that_stands_out(tmp_path: Path, text: str, said: str | None) -> None:
    (tmp_path / ("events.json" if text[:1] == "{" else "ticket.txt")).write_text(text)
    verdict = verdict_of(tmp_path)
    assert not verdict.suspects
    assert said in verdict.leads[0] if said else not verdict.leads


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(QUEUE + down("gx-11") + "$ tail job.out\n" + STEPS, id="a node of another job"),
        pytest.param(QUEUE + down("gx-5", reason="bad DIMM, RMA 5521") + "$ tail job.out\n" + STEPS, id="set aside"),
        pytest.param(QUEUE + down("gx-5", "gx-6") + "$ tail job.out\n" + STEPS, id="two nodes"),
        pytest.param(QUEUE + down("gx-5", when="2026-02-27T01:00:00") + "$ tail job.out\n" + STEPS, id="days before"),
        pytest.param(QUEUE + QUEUE.replace("3-6", "7-9") + down("gx-5") + "$ tail job.out\n" + STEPS, id="of which job"),
        pytest.param(amd(0, 0, 0, 0), id="no memory errors"),
        pytest.param(amd(0, 2, 17, 0), id="two GPUs with memory errors"),
        pytest.param(amd(0, 17), id="two GPUs"),
        pytest.param(watched(0, 0, 0, 0), id="all GPUs idle"),
        pytest.param(links(4, 4, 4, 4), id="all links up"),
        pytest.param(links(2, 2, 2, 2), id="all GPUs alike"),
        pytest.param(links(4, 1, 3, 4), id="two GPUs lack links"),
        pytest.param(fabric(0, 0), id="congestion alone"),
        pytest.param(fabric(30000, 38007), id="two ports"),
        pytest.param(taken("node-5", "node-6") + STEPS, id="two machines"),
        pytest.param(taken("node-5", when="2026-02-27T03:14:02+00:00") + STEPS, id="a host error days before"),
        pytest.param("$ srun hostname\nSLURM_JOB_NODELIST=node-[1-4]\n" + STEPS + taken("node-5"), id="no machine of the job"),
        pytest.param(scheduled("Scheduled"), id="announced"),
        pytest.param(scheduled("Started", "Unknown"), id="of another kind"),
        pytest.param(STEPS + SHELL.format("el12") + STEPS, id="the job went on"),
        pytest.param(PYXIS.format("gx-6") + PYXIS.format("gx-7"), id="no container on two nodes"),
        pytest.param(BY_PBS + listed("gx-9", "down") + "$ tail job.out\n" + STEPS, id="a host of another job of PBS"),
        pytest.param(BY_PBS + listed("gx-5", "down,offline") + "$ tail job.out\n" + STEPS, id="offline"),
        pytest.param(BY_LSF + hosts("closed") + "$ tail job.out\n" + STEPS, id="hosts that are full"),
        pytest.param(containers("Up 9 hours", "Exited (0) 3 minutes ago", "Up 9 hours"), id="ended well"),
        pytest.param(containers("Up 9 hours", "Exited (137) 2 weeks ago", "Up 9 hours"), id="ended before the others began"),
        pytest.param(
            containers("Exited (1) 3 minutes ago", "Exited (137) 3 minutes ago", "Up 9 hours", "Up 9 hours"), id="two"
        ),
        pytest.param(containers("Up 9 hours", "Up 9 hours", "Up 9 hours"), id="a container of another image"),
        pytest.param(EVENTS.format("Pod: ml.pre-worker-2 exited with code 0"), id="a pod that ended well"),
        pytest.param(EVENTS.format("Pod: ml.pre-worker-2 exited with code 137") + RESTARTED, id="started again"),
        pytest.param("SLURM_JOB_NODELIST=gx-[3-5]\n" + alert("Firing", "gx-9"), id="an alert of no host of the job"),
        pytest.param(f"[Sat Feb 28 01:14:01 2026] {EDAC}\n", id="a memory error days before"),
        pytest.param(alert("Resolved", "gx-6"), id="an alert that is over"),
        pytest.param(alert("Firing", "gx-6", "gx-7"), id="alerts of two hosts"),
        pytest.param(alert("Firing", "gx-6", name="HostHighCpuLoad", of=""), id="an alert of no device"),
        pytest.param(uncorrected("gx-6", "gx-7"), id="memory of two hosts"),
        pytest.param(uncorrected("gx-6").replace("1 UE", "1 CE"), id="corrected"),
    ],
)
def test_several_or_what_is_in_order_is_no_lead(tmp_path: Path, text: str) -> None:
    (tmp_path / ("events.json" if text[:1] == "{" else "ticket.txt")).write_text(text)
    if "step 20/" not in text:
        (tmp_path / "job.log").write_text(STEPS)
    verdict = verdict_of(tmp_path)
    assert not verdict.suspects
    assert not verdict.leads
