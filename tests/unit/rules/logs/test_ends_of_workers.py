"""Ends that ranks and engines report of each other: values that differ, workers that died."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, pasted

DIFFERS = "[rank{0}]: AssertionError: Rank {1} has different values for step: 8016.0. Other ranks: 7870.0\n"
SPOILT = (
    "[rank{0}]: RuntimeError: Rank {1}, node a, device 2, iteration 9: Unexpected result nan (found NaN in local grad norm)\n"
)


def test_the_rank_that_all_find_to_differ(tmp_path: Path) -> None:
    assert named(pasted(tmp_path, "".join(DIFFERS.format(rank, 2) for rank in range(4)))) == {2}
    assert not named(pasted(tmp_path, DIFFERS.format(0, 2))), "seen by one of them"
    assert not named(pasted(tmp_path, DIFFERS.format(0, 1) + DIFFERS.format(1, 0))), "each finds the other"


def test_an_error_that_says_where_it_was_found(tmp_path: Path) -> None:
    assert named(pasted(tmp_path, SPOILT.format(2, 2))) == {2}
    assert not named(pasted(tmp_path, SPOILT.format(2, 3)))
    assert not named(pasted(tmp_path, SPOILT.format(2, 2) + SPOILT.format(3, 3)))


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("a:9:9 [0] init.cc:497 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000\n", "failstop"),
        ("RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: x\n", "failstop"),
        ("(EngineCore_DP1 pid=9) ERROR 02-01 10:20:00 [core.py:710] EngineCore encountered a fatal error.\n", "failstop"),
        ("(EngineCore pid=9) ERROR Worker proc VllmWorker-0 died unexpectedly, shutting down executor.\n", "failstop"),
        ("a:9:9 [0] NCCL INFO no Duplicate GPU found\n", "inconclusive"),
        ("WARNING checks for mismatch between collectives are on\n", "inconclusive"),
        ("INFO Worker proc VllmWorker-0 started\n", "inconclusive"),
    ],
)
def test_ends_of_the_whole_job(tmp_path: Path, text: str, outcome: str) -> None:
    verdict = pasted(tmp_path, "[rank0] x\n" + text)
    assert (named(verdict), verdict.outcome) == (set(), outcome)


def engine(rank: int, label: str = "EngineCore", form: str = "Worker proc VllmWorker-{}") -> str:
    return f"({label} pid=58) ERROR 03-21 02:07:04 [m.py:230] {form.format(rank)} died unexpectedly, shutting down executor.\n"


def fault(*ranks: int) -> str:
    said = "Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered"
    return "".join(
        f"[rank{rank}]:[E321 02:07:03.34 ProcessGroupNCCL.cpp:2068] [PG ID 4 Rank {rank}] {said}\n" for rank in ranks
    )


def test_the_one_that_died_of_two_workers_of_vllm(tmp_path: Path) -> None:
    left = "(VllmWorker rank={} pid=41) INFO Parent process exited, terminating worker\n"
    assert named(pasted(tmp_path, engine(1) + left.format(0))) == {1}
    assert named(pasted(tmp_path, engine(2) + left.format(0))) == set(), "another one may have died as well"
    assert named(pasted(tmp_path, engine(1) + left.format(1))) == set()


@pytest.mark.parametrize("form", ["Worker proc VllmWorker-{}", "RayWorkerProc rank=[{}]"])
@pytest.mark.parametrize("label", ["EngineCore", "EngineCore_DP0"])
def test_the_worker_of_vllm_that_died_of_its_own_error(tmp_path: Path, form: str, label: str) -> None:
    assert named(pasted(tmp_path, fault(3) + engine(3, label, form=form))) == {3}


@pytest.mark.parametrize(
    "text",
    [
        engine(3),
        fault(0, 1, 2, 3) + engine(2),
        fault(3) + engine(1),
        fault(3) + engine(3, "EngineCore_DP1"),
        fault(3) + engine(3, form="RayWorkerProc rank=[2, {}]"),
    ],
    ids=["no error", "the error of all", "the error of another one", "a replica", "several died"],
)
def test_a_worker_of_vllm_that_only_died_is_no_suspect(tmp_path: Path, text: str) -> None:
    assert named(pasted(tmp_path, text)) == set()
