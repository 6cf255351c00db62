"""Pods that the kubelet evicted because their node ran out of something, as `kubectl describe pod` prints them."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.verdicts import named, verdict_of

LOW = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 61152Ki."


def pod(name: str, rank: int, message: str | None = LOW, gpus: int = 1) -> str:
    state = (
        f"Status:           Failed\nReason:           Evicted\nMessage:          {message}\n"
        if message
        else "Status:  Running\n"
    )
    limits = f"    Limits:\n      nvidia.com/gpu:  {gpus}\n"
    return f"Name:             {name}\n{state}Containers:\n  main:\n{limits}    Environment:\n      RANK:         {rank}\n"


def judged(folder: Path, *pods: str) -> set[int]:
    for number, text in enumerate(pods):
        (folder / f"describe_{number}.txt").write_text(text)
    for rank in (0, 1):
        closed = "RuntimeError: [pair.cc:534] Connection closed by peer [10.4.2.77]:11874"
        (folder / f"pod-{rank}.log").write_text(f"step 4 loss 1.1\n[rank{rank}]: {closed}\n")
    return named(verdict_of(folder))


@pytest.mark.parametrize("why", [LOW, "Pod ephemeral local storage usage exceeds the total limit of containers 200Gi."])
def test_the_rank_of_an_evicted_pod(tmp_path: Path, why: str) -> None:
    assert judged(tmp_path, pod("j-worker-1", 2, why), pod("j-worker-0", 1, None)) == {2}
    assert verdict_of(tmp_path).outcome is Outcome.FAILSTOP


@pytest.mark.parametrize(
    "pods",
    [
        (pod("j-worker-1", 2, gpus=8),),
        (pod("j-worker-1", 2, "Pod was preempted by a pod of a higher priority"),),
        (pod("j-worker-1", 2, None),),
    ],
    ids=["several ranks in the pod", "told to go", "running"],
)
def test_pods_of_which_no_rank_is_stated(tmp_path: Path, pods: tuple[str, ...]) -> None:
    assert not judged(tmp_path, *pods)


EVENT = "4m          Warning   Evicted     pod/{0}         {1}\n3m          Normal    Killing     pod/{0}   Stopping\n"


@pytest.mark.parametrize(("message", "expected"), [(LOW, {2}), ("Pod was preempted by a pod of a higher priority", set())])
def test_the_rank_of_a_pod_in_the_events_of_its_namespace(tmp_path: Path, message: str, expected: set[int]) -> None:
    pods = [pod(f"j-worker-{rank}", rank, None) for rank in range(3)]
    (tmp_path / "events.txt").write_text("LAST SEEN   TYPE   REASON   OBJECT   MESSAGE\n" + EVENT.format("j-worker-2", message))
    assert judged(tmp_path, *pods) == expected


KILLED = """Name:             j-worker-1
Status:           Running
Containers:
  main:
    State:          Running
      Started:      Sun, 02 Nov 2025 03:10:40 +0000
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
      Started:      Sat, 01 Nov 2025 22:02:40 +0000
      Finished:     Sun, 02 Nov 2025 03:10:13 +0000
    Limits:
      nvidia.com/gpu:  1
    Environment:
      RANK:         2
"""


@pytest.mark.parametrize(("day", "expected"), [("02", {2}), ("04", set())], ids=["steps until then", "steps days later"])
def test_a_pod_that_was_killed_before_steps_that_were_trained_since(tmp_path: Path, day: str, expected: set[int]) -> None:
    steps = "".join(f"2025-11-{day} 0{hour}:00:03 INFO step={100 + hour} loss=1.9\n" for hour in range(1, 4))
    (tmp_path / "worker-0.log").write_text(steps)
    assert judged(tmp_path, KILLED) == expected


AWAY = "LAST SEEN   TYPE   REASON   OBJECT   MESSAGE\n" + "{}".join(
    ("4m   Warning   NodeNotReady   pod/j-worker-2   Node is not ready\n", "")
)


@pytest.mark.parametrize(
    ("more", "stands", "expected"),
    [
        ("", True, {2}),
        ("", False, set()),
        ("4m   Warning   NodeNotReady   pod/j-worker-1   Node is not ready\n", True, set()),
    ],
    ids=["one of them", "the job goes on", "two of them"],
)
def test_the_rank_of_a_pod_whose_node_went_away(tmp_path: Path, more: str, stands: bool, expected: set[int]) -> None:
    (tmp_path / "describe.txt").write_text("\n".join(pod(f"j-worker-{rank}", rank, None) for rank in range(3)))
    (tmp_path / "events.txt").write_text(AWAY.format(more))
    steps = "".join(f"step {step} of 900 loss 1.{step}\n" for step in range(30, 60))
    closed = "[rank0]: RuntimeError: [pair.cc:534] Connection closed by peer [10.4.2.77]:11874\n"
    (tmp_path / "j-worker-0.log").write_text(steps + (closed if stands else ""))
    assert named(verdict_of(tmp_path)) == expected


ENDED = """Name:             {name}
Status:           Failed
Containers:
  main:
    State:          Terminated
      Reason:       {reason}
      Exit Code:    {code}
      Started:      Sat, 01 Nov 2025 22:02:40 +0000
      Finished:     Sun, 02 Nov 2025 03:1{minute}:13 +0000
"""
KILL = {"reason": "OOMKilled", "code": 137}
ERROR = {"reason": "Error", "code": 1}


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([(1, ERROR), (0, KILL), (2, ERROR)], "j-worker-1"),
        ([(0, KILL)], "j-worker-0"),
        ([(0, ERROR), (1, KILL), (2, ERROR)], None),
        ([(0, KILL), (0, KILL), (2, ERROR)], None),
        ([(0, ERROR), (1, ERROR)], None),
    ],
    ids=["others ended later", "alone", "another one ended before", "two were killed", "errors alone"],
)
def test_the_one_pod_of_several_that_was_killed_for_its_memory(
    tmp_path: Path, ends: list[tuple[int, dict[str, object]]], expected: str | None
) -> None:
    for number, (minute, how) in enumerate(ends):
        name = f"j-worker-{number}"
        (tmp_path / f"describe_{number}.txt").write_text(ENDED.format(name=name, minute=minute, **how))
    verdict = verdict_of(tmp_path)
    assert not named(verdict)
    assert [lead for lead in verdict.leads if f"pod {expected}," in lead] == list(verdict.leads[:1] if expected else ())
    assert bool(verdict.leads) is bool(expected)
