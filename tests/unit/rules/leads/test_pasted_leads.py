"""Where to begin by what people paste in other forms than the tools' own: their choice of columns, of GPUs, of looks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.recordings.verdicts import named, pasted, unnamed

STEPS = "".join(f"2026-03-02 03:13:{at:02d},113 - INFO - step {at}/9000 | loss 2.{at}\n" for at in range(20, 40))
JOB = (
    "$ sacct -j 88 -o JobID,NodeList,State\nJobID          NodeList      State \n"
    "----- ----------------- ----------\n88             gx-[3-6]  NODE_FAIL \n"
)
BY_NODE = "$ sinfo -N -o '%N %T %E'\nNODELIST STATE REASON\ngx-3 idle none\n{0} {1} {2}\ngx-9 down* Not responding\n"
BY_PARTITION = (
    "$ sinfo -p h100\nPARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\nh100         up   infinite      1  {1} {0}\n"
    "h100         up   infinite      1  down* gx-9\n"
)


@pytest.mark.parametrize("table", [BY_NODE, BY_PARTITION], ids=["by node", "by partition"])
@pytest.mark.parametrize(
    ("node", "state", "is_lead"),
    [
        ("gx-5", "down*", True),
        ("gx-5", "down", True),
        ("gx-[5-6]", "down*", False),
        ("gx-5", "drained", False),
        ("gx-5", "idle", False),
    ],
)
def test_a_node_of_the_job_that_is_down(tmp_path: Path, table: str, node: str, state: str, is_lead: bool) -> None:
    texts = {"slurm-88.out": STEPS, "nodes.txt": table.format(node, state, "Not responding") + JOB}
    leads = unnamed(tmp_path, texts).leads
    assert any("node gx-5" in lead for lead in leads) is is_lead
    assert not any("gx-9" in lead for lead in leads)


def scheduled(status: str) -> str:
    event = {"EventId": "C7", "EventStatus": status, "EventType": "Redeploy", "Resources": ["vm_3"]}
    return json.dumps({"DocumentIncarnation": 12, "Events": [event]}, indent=1)


@pytest.mark.parametrize("block", ["{}\n", "```json\n{}\n```\n", "$ curl -H Metadata:true $URL\n{}\n"])
@pytest.mark.parametrize(("status", "is_lead"), [("Started", True), ("Scheduled", False)])
def test_an_event_of_a_machine_in_a_ticket(tmp_path: Path, block: str, status: str, is_lead: bool) -> None:
    leads = pasted(tmp_path, f"It stands still. One VM?\n\n{block.format(scheduled(status))}\nlast lines:\n{STEPS}").leads
    assert any("vm_3" in lead for lead in leads) is is_lead


def looks(*states: str, commands: bool = True) -> str:
    """Two looks at the processes of one host, ten minutes apart."""
    command = "$ date; ps -eo pid,stat,etime,time,cmd | grep fit.py | grep -v grep\nWed Mar 11 09:{0}0:02 UTC 2026\n"
    head = "    PID STAT     ELAPSED     TIME COMMAND\n"
    row = "  7120{0} {1:4}    05:41:1{0} 05:{2}8:1{0} python -u fit.py --local_rank={0}\n"
    rows = ["".join(row.format(at, f"{state}l+", look) for at, state in enumerate(states)) for look in (1, 2)]
    return "".join((command.format(look) if commands else "") + head + each for look, each in enumerate(rows))


@pytest.mark.parametrize(("states", "pid"), [("RRDR", 71202), ("RRRR", None), ("DRDR", None)])
@pytest.mark.parametrize("commands", [True, False])
def test_two_looks_at_the_processes_of_a_host(tmp_path: Path, states: str, pid: int | None, commands: bool) -> None:
    leads = unnamed(tmp_path, {"ps.txt": looks(*states, commands=commands)}).leads
    assert [f"/proc/{pid}/stack" in lead for lead in leads if "/stack" in lead] == ([] if pid is None else [True])


def performance(host: str, clock: int, is_hot: bool, attached: int = 8) -> str:
    """`nvidia-smi -q -d PERFORMANCE,CLOCK -i 4` below a prompt."""
    words = "Active" if is_hot else "Not Active"
    return (
        f"[{host}]$ nvidia-smi -q -d PERFORMANCE,CLOCK -i 4\n\n==============NVSMI LOG==============\n\n"
        f"Attached GPUs                             : {attached}\nGPU 00000000:87:00.0\n    Clocks Event Reasons\n"
        f"        HW Slowdown                       : {words}\n            HW Thermal Slowdown           : {words}\n"
        f"    Clocks\n        SM                                : {clock} MHz\n\n"
    )


@pytest.mark.parametrize(
    ("hot", "attached", "expected"),
    [
        ((False, True, False), 8, "GPU-00000000:87:00.0 of r1n1"),
        ((False, True, False), 1, "GPU-0 of r1n1"),
        ((False, False, False), 8, None),
        ((True, True, False), 8, None),
    ],
    ids=["one of those that were asked for", "the only one", "none", "two"],
)
def test_one_gpu_of_each_host(tmp_path: Path, hot: tuple[bool, ...], attached: int, expected: str | None) -> None:
    texts = [performance(f"r1n{at}", 345 if each else 1980, each, attached) for at, each in enumerate(hot)]
    verdict = pasted(tmp_path, "5 s an iteration, 14 since ten\n\n" + "".join(texts))
    assert not named(verdict)
    held = [lead for lead in verdict.leads if "clocks are held down" in lead]
    assert [expected in lead for lead in held] == [True] if expected else not held


LISTED = "GPU 7: NVIDIA H100 80GB HBM3 (UUID: GPU-{0}f2e)"
UNABLE = "Unable to determine the device handle for GPU6: 0000:BA:00.0: Unknown Error"


@pytest.mark.parametrize("above", ["== {0}", "--- {0} ---", "[root@{0} ~]# nvidia-smi -L | tail -1"])
@pytest.mark.parametrize(("lost", "host"), [((3,), "tn-3"), ((), None), ((2, 3), None)], ids=["one", "none", "two"])
def test_a_line_of_each_host_of_a_loop(tmp_path: Path, above: str, lost: tuple[int, ...], host: str | None) -> None:
    rows = (f"{above.format(f'tn-{at}')}\n{UNABLE if at in lost else LISTED.format(at)}\n" for at in range(1, 5))
    leads = pasted(
        tmp_path, "ann: job 33 hangs\n\n[bob@login ~]$ for n in $NODES; do ssh $n nvidia-smi -L; done\n" + "".join(rows)
    ).leads
    found = [lead for lead in leads if "GPU is lost" in lead]
    assert [f"of {host}," in lead for lead in found] == [True] if host else not found
