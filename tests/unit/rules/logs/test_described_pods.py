"""Pods that kubectl describes as ended, and the ranks that they wrote when they began."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.verdicts import named, pasted, verdict_of

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


@pytest.mark.parametrize(("code", "gpus", "ranks"), [(139, 1, {2}), (135, 1, {2}), (134, 1, set()), (139, 8, set())])
def test_the_one_pod_of_a_rank_each_that_a_signal_ended(tmp_path: Path, code: int, gpus: int, ranks: set[int]) -> None:
    """Nothing but the descriptions is there: an abort may be that of a watchdog, and a pod may start several ranks."""
    of_pod = "    Limits:\n      nvidia.com/gpu:  {1}\n    Environment:\n      WORLD_SIZE:   4\n      RANK:         {0}\n"
    runs = "Name:             j-worker-{0}\n    State:          Running\n"
    ends = described("j-worker-2", code, "Error", "State")
    text = "\n".join((ends if rank == 2 else runs.format(rank)) + of_pod.format(rank, gpus) for rank in range(4))
    assert named(pasted(tmp_path, text)) == ranks


@pytest.mark.parametrize(("per_pod", "ranks"), [(1, {2}), (8, set())], ids=["a rank each", "the first of eight each"])
def test_a_table_of_pods_beside_the_log_in_which_they_wrote(tmp_path: Path, per_pod: int, ranks: set[int]) -> None:
    written = "".join(f"[pod/j-{pod}/main] [rank{pod * per_pod}]: step 10 loss 2.1\n" for pod in range(3))
    (tmp_path / "all.log").write_text(written + "[pod/j-0/main] [rank0]: ncclRemoteError: remote process exited\n")
    states = ("1/1     Running  ", "1/1     Running  ", "0/1     OOMKilled")
    rows = "".join(f"j-{pod}    {state}   0          71m\n" for pod, state in enumerate(states))
    (tmp_path / "pods.txt").write_text(f"NAME   READY   STATUS      RESTARTS   AGE\n{rows}")
    assert named(verdict_of(tmp_path)) == ranks
