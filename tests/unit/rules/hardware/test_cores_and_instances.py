"""Where to begin by a core that one process left, and by an instance that failed, or was taken from under a node of a job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.recordings.verdicts import named, verdict_of

CORE = """           PID: {pid} (python3)
           UID: 1002 (jo)
        Signal: {signal}
     Timestamp: Fri 2026-05-08 03:12:44 CEST (2h ago)
  Command Line: {command}
      Hostname: gx-3
       Storage: /var/lib/systemd/coredump/core.zst (present)

                Stack trace of thread {pid}:
                #0  0x00007f2ad1c4b2ff n/a (a.so + 0x112ff)
"""
RANK = "python3 -u t.py --local_rank={}"
GONE = "Host EC2 (instance i-0a{}) terminated."


def core(pid: int, command: str, signal: str = "11 (SEGV)") -> str:
    return CORE.format(pid=pid, command=command, signal=signal)


def begin_with(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    verdict = verdict_of(folder)
    assert not named(verdict)
    return " ".join(verdict.leads)


def nodes(*reasons: tuple[str, str]) -> str:
    rows = [
        {"jobId": f"a#{at}", "status": status, "statusReason": why, "nodeDetails": {"nodeIndex": at}}
        for at, (status, why) in enumerate(reasons)
    ]
    return json.dumps({"jobs": [{"jobId": "a", "status": "FAILED", "statusReason": "x"}, *rows]})


@pytest.mark.parametrize("prompt", ["", "$ coredumpctl info 71\n"])
def test_the_process_that_left_a_core(tmp_path: Path, prompt: str) -> None:
    said = begin_with(tmp_path, "core.txt", prompt + core(71, RANK.format(3)))
    assert "log and core of process 71, local rank 3 on gx-3" in said


@pytest.mark.parametrize(
    "text",
    [
        core(71, "/usr/lib/code-server/node --max=4096"),
        core(71, RANK.format(3), "6 (ABRT)"),
        core(71, RANK.format(3)) + core(72, RANK.format(4)),
    ],
    ids=["of another program", "an abort, as watchdogs end", "several"],
)
def test_cores_that_are_no_lead(tmp_path: Path, text: str) -> None:
    assert not begin_with(tmp_path, "core.txt", text)


FAILED = ("FAILED", "Essential container in task exited")


def test_the_node_whose_instance_was_ended(tmp_path: Path) -> None:
    said = begin_with(tmp_path, "jobs.json", nodes(FAILED, ("FAILED", GONE.format(1)), FAILED))
    assert "node 1 (i-0a1)" in said


@pytest.mark.parametrize(
    "text",
    [
        nodes(FAILED, FAILED),
        nodes(FAILED, ("FAILED", GONE.format(1)), ("FAILED", GONE.format(2))),
        nodes(("SUCCEEDED", GONE.format(0)), ("SUCCEEDED", "x")),
    ],
    ids=["all failed", "several", "it ran again"],
)
def test_nodes_that_are_no_lead(tmp_path: Path, text: str) -> None:
    assert not begin_with(tmp_path, "jobs.json", text)


def cluster(*states: str) -> str:
    rows = [{"InstanceId": f"i-0c{at}", "InstanceStatus": {"Status": state}} for at, state in enumerate(states)]
    return json.dumps({"ClusterNodeSummaries": rows})


@pytest.mark.parametrize(
    ("states", "said"),
    [(("Running", "Failure"), "i-0c1 and the ranks there"), (("Failure", "Failure"), ""), (("Running",), "")],
)
def test_instances_of_a_cluster_of_hyperpod(tmp_path: Path, states: tuple[str, ...], said: str) -> None:
    assert said in (found := begin_with(tmp_path, "nodes.json", cluster(*states))) and bool(said) == bool(found)
