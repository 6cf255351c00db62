"""Ends as launchers and operators print them: who ended first, by rank, by process or by pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome, Verdict
from tests.recordings.verdicts import named, verdict_of

COMPOSER = "ERROR:composer.cli.launcher:"
RAY = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: W\n\tpid: {0}\n"
AGENT = "E0321 02:07:08.1 4711 torch/distributed/elastic/api.py:869] failed (exitcode: {0}) local_rank: {1} (pid: 99)\n"


def pasted(tmp_path: Path, text: str) -> Verdict:
    (tmp_path / "job.log").write_text(text)
    return verdict_of(tmp_path)


def composer(*codes: int) -> str:
    return "".join(
        f"{COMPOSER}Global rank {rank} (PID {500 + rank}) exited with code {code}\n" for rank, code in enumerate(codes)
    )


def workers(*pids: int) -> str:
    rows = (
        f"(T pid=1) - (node_id=0c, ip=10.2.0.4, pid={pid}) world_rank={rank}, local_rank=0\n" for rank, pid in enumerate(pids)
    )
    return "".join(rows)


def pods(*names: str) -> str:
    return "".join(
        f"[pod/{name}/c] 2026-03-21T02:04:11Z RANK={rank} WORLD_SIZE={len(names)}\n" for rank, name in enumerate(names)
    )


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        (f"{COMPOSER}Rank 2 crashed with exit code -7.\n" + composer(-15, -15, -7, -15), 2),
        (composer(-15, -15, -15, -11), 3),
        ("GLOBAL_RANK: 3, MEMBER: 4/4 (pid 61)\n[rank: 0] Child process with PID 61 terminated with code -9. Force\n", 3),
        ("[0]<stderr>:x\nRuntimeError: The first process to do so was:\nExit code: 1\nProcess name: 1\n", 1),
        (workers(50, 51, 52) + RAY.format(52), 2),
        (pods("j-master-0", "j-worker-0", "j-worker-1") + "Error pod j-worker-1 container c exitCode: 137 terminated\n", 2),
        ("$ torchrun --nnodes=4 --nproc_per_node=8 --node_rank=2 a.py\n" + AGENT.format(-9, 6), 22),
        ('{"log":"Rank 2 crashed with exit code -7.\\n","stream":"stderr","time":"2026-03-21T02:04:11Z"}\n', 2),
    ],
    ids=["composer", "composer's list", "lightning", "horovodrun", "ray", "operator", "static start", "record"],
)
def test_the_rank_that_a_launcher_saw_end_first(tmp_path: Path, text: str, rank: int) -> None:
    verdict = pasted(tmp_path, text)
    assert (named(verdict), verdict.outcome) == ({rank}, Outcome.FAILSTOP)


@pytest.mark.parametrize(
    "text",
    [
        composer(-15, -15, -15, -15),
        composer(-9, -9, -9, -9),
        "[rank: 0] Child process with PID 61 terminated with code -9. Forcefully\n",
        workers(50, 51, 51) + RAY.format(51),
        RAY.format(52),
        pods("j-master-0", "j-worker-0") + "Error pod j-worker-7 container c exitCode: 137 terminated\n",
        "[pod/j-worker-1/c] RANK=8\n[pod/j-worker-0/c] RANK=0\nError pod j-worker-1 container c exitCode: 137 terminated\n",
        "$ torchrun --nnodes=4 --rdzv_backend=c10d --nproc_per_node=8 --node_rank=2 a.py\n" + AGENT.format(-9, 6),
        "--nnodes=2 --nproc_per_node=8 --node_rank=1\n--nnodes=2 --nproc_per_node=8 --node_rank=0\n" + AGENT.format(-9, 6),
        "Exit code: 1\nsomething else\nanother line\nProcess name: 1 of the pool\n",
    ],
    ids=[
        "all ended",
        "all at once",
        "no rank",
        "two ranks",
        "unknown",
        "no such pod",
        "pods of eight",
        "elastic",
        "two",
        "code",
    ],
)
def test_ends_that_tell_no_rank(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))
