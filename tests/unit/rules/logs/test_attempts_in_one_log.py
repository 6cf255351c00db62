"""Logs of several attempts, and local numbers of several nodes: what is over, and what is not of the job, names nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.verdicts import named, pasted, verdict_of

AGENT = "E0321 02:07:08.1 4711 torch/distributed/elastic/api.py:869] failed (exitcode: {0}) local_rank: {1} (pid: 99)\n"


def caught(rank: int, error: str, at: int = 0) -> str:
    frames = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n'
    return "step\n" * at + f"ERROR [02/10 10:28:51 rank{rank} engine]: Exception during training:\n{frames}{error}\n"


LOST = "RuntimeError: [pair.cc:575] Connection closed by peer [127.0.1.1]:39827"


def test_the_one_error_that_tells_of_no_peer(tmp_path: Path) -> None:
    assert named(pasted(tmp_path, caught(2, "AssertionError: x") + caught(0, LOST) + caught(1, LOST))) == {2}


@pytest.mark.parametrize(
    "text",
    [
        caught(2, "AssertionError: x"),
        caught(2, "AssertionError: x") + caught(0, LOST, at=5000),
        caught(0, LOST) + caught(2, "AssertionError: x"),
        caught(2, "AssertionError: x") + caught(3, "AssertionError: x") + caught(0, LOST),
    ],
    ids=["alone", "long before", "behind", "two"],
)
def test_errors_that_a_program_caught_and_that_are_no_cause(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))


@pytest.mark.parametrize("prompt", ["ada@n1:~/t$", "[ada@n1 t]$", "(fit) [root@n1 ~]#"])
def test_an_attempt_that_was_followed_by_another_tells_nothing_of_it(tmp_path: Path, prompt: str) -> None:
    start, failed = (
        prompt + " torchrun --nproc_per_node=2 fit.py --batch {0}\n",
        "[rank1]: ValueError: x\n" + AGENT.format(-9, 1),
    )
    assert named(pasted(tmp_path, start.format(64) + failed)) == {1}
    assert not named(pasted(tmp_path, start.format(64) + failed + start.format(32) + "step 1\n"))
    assert named(pasted(tmp_path, start.format(64) + failed + start.format(32) + AGENT.format(-9, 0))) == {0}
    assert named(pasted(tmp_path, start.format(64) + failed + "$ torchrun --version\n$ python a.py torchrun x\n")) == {1}


def test_a_wait_of_an_earlier_attempt_names_nobody(tmp_path: Path) -> None:
    start = "$ torchrun --nproc_per_node=4 fit.py\n"
    waits = "".join(
        f"[rank{rank}]:[E1103 03:22:51.2 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=411, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600017 milliseconds\n"
        for rank in (0, 1, 3)
    )
    assert named(pasted(tmp_path, start + waits)) == {2}
    later = pasted(tmp_path, start + waits + start + "step 100 loss 2.9\nstep 110 loss 2.8\n")
    assert (named(later), later.outcome) == (set(), Outcome.INCONCLUSIVE)
    assert "rank 2" not in "".join(later.would_change)


@pytest.mark.parametrize(("label", "right"), [("(head, rank=0, pid=7) ", {5}), ("(worker1, rank=1, pid=7) ", set())])
def test_a_local_rank_on_another_node_of_skypilot_is_no_rank_of_the_job(tmp_path: Path, label: str, right: set[int]) -> None:
    assert (
        named(pasted(tmp_path, "".join(f"{label}{line}\n" for line in ("step 4 loss 2.1", AGENT.format(-9, 5).strip()))))
        == right
    )


@pytest.mark.parametrize(
    ("others", "right"),
    [("", {5}), ("worker-1: step 9 loss 2.0\n", {5}), ("worker-0: step 9 loss 2.0\n", set()), ("step 3: loss 2.0\n", {5})],
    ids=["alone", "of that host", "of two hosts", "no host"],
)
def test_a_local_rank_behind_the_name_of_one_of_several_hosts(tmp_path: Path, others: str, right: set[int]) -> None:
    assert named(pasted(tmp_path, others + "worker-1: " + AGENT.format(-9, 5))) == right


@pytest.mark.parametrize(
    ("name", "text", "right"),
    [
        ("pod-1.log", "step 3 loss 2.0\nstep 4 loss 1.9\n", set()),
        ("launch.log", "step 3 loss 2.0\nstep 4 loss 1.9\n", {5}),
        ("pod-1.log", "2026-03-01 10:00:00 step 3\n2026-03-01 10:00:09 step 4\n2026-03-01 10:00:18 step 5\n", {5}),
    ],
    ids=["of another host, or a try", "another kind of log", "a try before it"],
)
def test_a_local_rank_in_one_of_several_logs_that_are_called_alike(
    tmp_path: Path, name: str, text: str, right: set[int]
) -> None:
    dated = "".join(f"2026-03-02 10:00:{n}0 step {n}\n" for n in range(4))
    (tmp_path / "pod-0.log").write_text(dated + AGENT.format(-9, 5))
    (tmp_path / name).write_text(text)
    assert named(verdict_of(tmp_path)) == right


def test_a_command_on_another_node_begins_no_other_attempt(tmp_path: Path) -> None:
    start = "[ada@n{0} t]$ torchrun --nnodes=2 --nproc_per_node=2 --node_rank={0} fit.py\n"
    lost = "[rank{0}]: torch.distributed.DistBackendError: NCCL error, remote process exited or there was a network error\n"
    own = start.format(0) + "[rank1]: ValueError: x\n" + lost.format(0) + start.format(1) + lost.format(2) + lost.format(3)
    assert named(pasted(tmp_path, own)) == {1}
    assert not named(pasted(tmp_path, own + start.format(0) + lost.format(2) + lost.format(3)))
