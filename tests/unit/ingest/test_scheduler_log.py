from __future__ import annotations

from time import process_time

import pytest

from forensics.ingest import choose
from tests.unit.ingest.reading import read, sample


def events(name: str) -> list[tuple[str, str | None]]:
    result = sample(f"scheduler_log/{name}")
    assert result.ingester == "scheduler_log"
    return [(row["kind"], row["subject"]) for row in result.rows("log_events")]


def test_the_controller_of_slurm() -> None:
    assert events("handmade_slurmctld.log") == [
        ("node_not_responding", "gpu-009"),
        ("node_failed", "gpu-009"),
        ("job_cancelled", "JobId=4711 node failure gpu-009"),
        ("job_cancelled", "JobId=4712 node failure gpu-009"),
        ("job_cancelled", "JobId=4713 time limit"),
        ("job_cancelled", "JobId=4714 on request"),
        ("job_cancelled", "JobId=4715 preemption"),
    ]


def test_events_of_kubernetes() -> None:
    assert events("handmade_kubectl_events.txt") == [
        ("oom_kill", "node/gpu-017"),
        ("pod_stopped", "pod/train-worker-3"),
        ("pod_evicted", "pod/train-worker-5"),
        ("process_exit", "exitcode=137 pod=train-worker-5 evicted"),
        ("pod_evicted", "pod/train-worker-6"),
        ("node_failed", "pod/train-worker-7"),
    ]


def test_a_described_pod() -> None:
    assert events("handmade_kubectl_describe.txt") == [
        ("oom_kill", "pod=train-worker-3 OOMKilled"),
        ("process_exit", "exitcode=137 pod=train-worker-3"),
    ]


def test_local_times_are_unknown_and_zones_are_read() -> None:
    assert sample("scheduler_log/handmade_slurmctld.log").rows("log_events")[0]["time_ns"] is None


def test_other_logs_with_such_times_are_not_taken() -> None:
    ingester = choose(b"[2026-03-21T02:05:11] step 3 loss 2.1\n[2026-03-21T02:05:12] step 4 loss 2.0\n", "train.log")
    assert ingester is not None
    assert ingester.name == "training_log"
    assert choose(b"", "slurmctld.log") is None


def test_cut_and_hostile_lines() -> None:
    content = b"[2026-03-21T02:05:11.204] error: Nodes " + b"g" * 5_000_000 + b" not responding\n[2026-03-21T02:06"
    assert read(content, "slurmctld.log").problems == []


@pytest.mark.parametrize(
    "text",
    ["JobID|State|ExitCode\n88|\t|0:0\n", f"JobID{' ' * 2000}State{' ' * 2000}!\n" * 25],
    ids=["a state of a tab", "columns far apart"],
)
def test_tables_of_accounts_of_a_hostile_form(text: str) -> None:
    began = process_time()
    result = read(text.encode(), "sacct.txt")
    assert result.rows("log_events") == [] and process_time() - began < 2


SACCT = """$ sacct -j 88 --format=JobID,JobName,State,ExitCode,NodeList
JobID           JobName      State ExitCode        NodeList
------------ ---------- ---------- -------- ---------------
88              tune-7b {0:>10}      0:0   n-[04-05,09]
88.batch          batch {0:>10}      0:0            n-04
88.0             python {1:>10} {2:>8}   n-[04-05,09]
"""


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        (SACCT.format("FAILED", "FAILED", "3:0"), [("terminated", "step 88.0 FAILED exit code 3:0")]),
        (
            SACCT.format("OUT_OF_ME+", "OUT_OF_ME+", "0:125"),
            [("oom_kill", "88.0"), ("terminated", "step 88.0 OUT_OF_ME exit code 0:125")],
        ),
        (SACCT.format("TIMEOUT", "CANCELLED", "0:15"), [("job_cancelled", "JobId=88 time limit")]),
        (SACCT.format("COMPLETED", "COMPLETED", "0:0"), []),
        (SACCT.format("RUNNING", "RUNNING", "0:0"), []),
        (
            "JobID|State|ExitCode\n88|CANCELLED by 1003|0:0\n88.0|CANCELLED by 1003|0:9\n",
            [("job_cancelled", "JobId=88 on request")],
        ),
        ("JobID,State,ExitCode\n88,NODE_FAIL,0:0\n88,COMPLETED,0:0\n", []),
        ("JobID,State,ExitCode\n87,FAILED,1:0\n88,COMPLETED,0:0\n", []),
        ("JobID,State\n88", []),
    ],
    ids=["failed", "memory", "limit", "complete", "runs", "cancelled", "started again", "two jobs", "cut"],
)
def test_how_the_one_job_of_a_table_of_accounts_ended(text: str, ends: list[tuple[str, str]]) -> None:
    result = read(text.encode(), "sacct.txt")
    assert result.ingester == "scheduler_log"
    assert [(row["kind"], row["subject"]) for row in result.rows("log_events")] == ends
