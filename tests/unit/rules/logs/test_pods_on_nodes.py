"""Pods and their nodes, by `kubectl get pods -o wide`: kernel logs of nodes, and nodes that went away."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, verdict_of
from tests.unit.ingest.reading import read

HEADER = "NAME        READY   STATUS    RESTARTS   AGE   IP           NODE       NOMINATED NODE   READINESS GATES\n"
ROW = "{pod}   1/1     {status}   0          14h   10.244.1.{n}   {node}   <none>           <none>\n"
INIT = (
    "j-{pod}:70{rank}:81{rank} [{local}] NCCL INFO ncclCommInitRank comm 0x5{rank} rank {rank} nranks {size} cudaDev {local} "
    "nvmlDev {local} busId {local}a000 commId 0x7 - Init COMPLETE\n"
)
GAVE_UP = (
    "[rank{rank}]:[E904 09:21:44.133706555 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600031 milliseconds "
    "before timing out.\n"
)
XID = "[Fri Sep  4 09:1{0}:40 2026] NVRM: Xid (PCI:0000:1a:00): 79, pid=8122, name=python3, GPU has fallen off the bus.\n"
AWAY = "LAST SEEN   TYPE   REASON   OBJECT   MESSAGE\n22m   Warning   NodeNotReady   pod/j-2   Node is not ready\n"
START = "+ torchrun --nnodes=4 --nproc-per-node=2 --rdzv-endpoint=j-0:29500 train.py\n"


def table(nodes: list[str], status: str = "Running") -> str:
    return HEADER + "".join(ROW.format(pod=f"j-{n}", status=status, n=n, node=node) for n, node in enumerate(nodes))


def jobs(folder: Path, pods: tuple[int, ...], silent: int) -> None:
    """Logs of pods with two ranks each, of which those of `silent` gave up on nothing."""
    for pod in pods:
        ranks = (2 * pod, 2 * pod + 1)
        lines = [INIT.format(pod=pod, rank=rank, local=rank % 2, size=8) for rank in ranks]
        lines += [GAVE_UP.format(rank=rank) for rank in ranks if rank != silent]
        (folder / f"logs-j-{pod}.txt").write_text(START + "".join(lines))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [(["gx-a1", "gx-b2", "gx-c3", "gx-d4"], "log of rank 5"), (["gx-a1", "gx-c3", "gx-c3", "gx-d4"], "0000:1a:00 of gx-c3")],
    ids=["one pod on a node", "two pods on it"],
)
def test_the_kernel_log_of_the_node_is_of_its_pod(tmp_path: Path, nodes: list[str], expected: str) -> None:
    jobs(tmp_path, (0, 1, 2, 3), silent=5)
    (tmp_path / "pods.txt").write_text(table(nodes))
    (tmp_path / "dmesg_gx-c3.log").write_text("".join(XID.format(minute) for minute in range(3)))
    assert expected in verdict_of(tmp_path).leads[0]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [(["gx-a1", "gx-b2", "gx-c3", "gx-d4"], {4, 5}), (["gx-a1", "gx-b2", "gx-c3"], set())],
    ids=["all pods of the job", "fewer than it has"],
)
def test_the_ranks_of_a_pod_whose_node_went_away(tmp_path: Path, nodes: list[str], expected: set[int]) -> None:
    jobs(tmp_path, (0, 1, 3), silent=-1)
    (tmp_path / "pods.txt").write_text(table(nodes))
    (tmp_path / "events.txt").write_text(AWAY)
    assert named(verdict_of(tmp_path)) == expected


def test_pods_in_the_order_of_their_numbers() -> None:
    names = ["j-worker-10", "j-master-0", "j-worker-2", "j-launcher"]
    text = HEADER + "".join(ROW.format(pod=name, status="OOMKilled", n=n, node=f"gx-{n}") for n, name in enumerate(names))
    found = read(text.encode(), "pods.txt")
    assert [row["host"] for row in found.rows("nodes")] == ["j-master-0", "j-worker-2", "j-worker-10"]
    assert found.rows("log_events")[0]["subject"] == "exitcode=137 pod=j-worker-10 time=list by=mpi"
