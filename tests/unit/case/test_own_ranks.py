"""Logs of one process each: whose they are is what the processes state when they start, where the logs bear each other out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, verdict_of

FAILED = 'Traceback (most recent call last):\n  File "/w/t.py", line 3, in <module>\nKeyError: 7\n'
INIT = "| distributed init (rank {0}): env://\n"


def logs(folder: Path, *ranks: int, form: str = INIT, failed: int = 2) -> Path:
    """One log for each rank, of which one ends with an error."""
    for place, rank in enumerate(ranks):
        steps = "".join(f"step {step}/900 loss 2.{rank}\n" for step in range(5))
        (folder / f"output-{'abcd'[place]}.log").write_text(form.format(rank) + steps + (FAILED if rank == failed else ""))
    return folder


@pytest.mark.parametrize(
    "form",
    [
        INIT,
        "initializing distributed: GLOBAL_RANK: {0}, MEMBER: 1/4\n",
        "Process index: {0}\n",
        "env RANK={0} LOCAL_RANK={0} x=1\n",
        "2026-12-01 03:00:00,100 INFO setup: rank={0} world_size=4 seed 7\n",
        "INFO - starting, rank: {0}, world size: 4\n",
    ],
)
def test_each_log_is_of_the_rank_that_it_states(tmp_path: Path, form: str) -> None:
    assert named(verdict_of(logs(tmp_path, 0, 1, 2, 3, form=form))) == {2}


@pytest.mark.parametrize("ranks", [(2, 2), (2,), (2, 16)], ids=["twice", "alone", "too far apart"])
def test_what_others_do_not_bear_out_is_nobodys(tmp_path: Path, ranks: tuple[int, ...]) -> None:
    assert named(verdict_of(logs(tmp_path, *ranks))) == set()


@pytest.mark.parametrize("form", ["node rank={0} world_size=4\n", "local rank={0}, world size: 4\n", "rank={0} world_size=1\n"])
def test_a_number_that_is_not_of_the_job_is_nobodys(tmp_path: Path, form: str) -> None:
    assert named(verdict_of(logs(tmp_path, 1, 2, 3, form=form))) == set()


def test_of_logs_of_nodes_on_which_one_process_states_its_rank_none_is_of_that_rank(tmp_path: Path) -> None:
    form = "rank={0} world_size=4\n"
    assert named(verdict_of(logs(tmp_path, 0, 2, form=form))) == set()


def test_a_log_of_several_processes_is_nobodys(tmp_path: Path) -> None:
    assert named(verdict_of(logs(tmp_path, 0, 2, form=INIT + INIT.format(9)))) == set()


GAVE_UP = (
    "[E311 10:41:4{0}.0 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=45, "
    "OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600001 milliseconds before timing out.\n"
)


@pytest.mark.parametrize(
    ("said", "expected"),
    [({0: (0,), 1: (1,), 3: (3,)}, {2}), ({}, set()), ({0: (0, 1), 1: (2, 3), 3: (6, 7)}, set()), ({1: (1,)}, set())],
    ids=["of ranks", "of what is not known", "of nodes", "of one log alone"],
)
def test_a_rank_that_was_given_counts_what_the_logs_show(
    tmp_path: Path, said: dict[int, tuple[int, ...]], expected: set[int]
) -> None:
    """An operator gives it to what it starts in a pod: one rank, or the launcher of several."""
    for given in range(4):
        end = FAILED if given == 2 else "".join(map(GAVE_UP.format, said.get(given, ())))
        steps = "".join(f"step {step}/900 loss 2.{given}\n" for step in range(5))
        (tmp_path / f"out ({given ^ 1}).txt").write_text(f"RANK={given} WORLD_SIZE=4 MASTER_ADDR=a\n{steps}{end}")
    assert named(verdict_of(tmp_path)) == expected


def test_the_logs_of_a_run_of_wandb_are_of_its_process(tmp_path: Path) -> None:
    for rank in (2, 3):
        run = tmp_path / f"wandb/run-20251101_10101{rank}-k{rank}"
        for folder in ("logs", "files"):
            (run / folder).mkdir(parents=True)
        noted = f"2025-11-01 10:10:10,124 INFO    MainThread:4 [wandb_init.py:init():781] config: {{'lr': 1, 'rank': {rank}}}\n"
        (run / "logs/debug.log").write_text(noted)
        steps = "".join(f"step {step}/900 loss 2.{rank}\n" for step in range(5))
        (run / "files/output.log").write_text(steps + (FAILED if rank == 3 else ""))
    assert named(verdict_of(tmp_path)) == {3}
