"""Logs that differ by a number in their names are of ranks where some of them say so, and of anybody where none does."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from tests.recordings.verdicts import named, verdict_of

STEPS = "".join(f"it {step} loss {5 - step / 400:.3f}\n" for step in range(0, 300, 50))
TIMED_OUT = (
    "[rank{0}]:[E811 16:20:19.23 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=5919, OpType=ALLREDUCE, NumelIn=27249, NumelOut=27249, Timeout(ms)=600000) ran for 600098 milliseconds "
    "before timing out.\n"
)
RAISED = (
    'Traceback (most recent call last):\n  File "/wd/train.py", line 212, in <module>\n    main()\n'
    "OSError: [Errno 116] Stale file handle: '/mnt/shards/00311.npy'\n"
)


def logs(folder: Path, name: str, ranks: list[int], failed: int, first: int = 0) -> Path:
    """A log for each number, `name` with it; the others state their ranks."""
    folder.mkdir(exist_ok=True)
    for number, rank in enumerate(ranks, start=first):
        text = STEPS + (RAISED if number == failed else TIMED_OUT.format(rank))
        (folder / name.format(number)).write_text(text)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["worker-{}.out", "slurm_8122_{}.txt", "task{:03d}.log"])
def test_the_one_whose_log_states_no_rank_is_named_by_its_number(tmp_path: Path, name: str) -> None:
    assert named(verdict_of(logs(tmp_path / "case", name, [0, 1, 2, 3], failed=1))) == {1}


@pytest.mark.parametrize(
    ("ranks", "failed", "first"),
    [([0, 8, 16, 24], 1, 0), ([0, 0, 0, 0], 1, 0), ([1, 0, 3, 2], 1, 0), ([0, 1, 2, 3], 2, 4)],
    ids=["nodes", "tries", "another order", "not from 0"],
)
def test_numbers_of_anything_else_are_no_ranks(tmp_path: Path, ranks: list[int], failed: int, first: int) -> None:
    assert named(verdict_of(logs(tmp_path / "case", "worker-{}.out", ranks, failed, first))) == set()


@pytest.mark.parametrize("name", ["log-{}.txt", "out_{}.log", "{}.log", "train.{}"])
def test_a_log_that_states_another_rank_than_its_number_shows_that_the_numbers_are_none(tmp_path: Path, name: str) -> None:
    assert named(verdict_of(logs(tmp_path / "case", name, [3, 0, 1, 2], failed=1))) == set()
    assert named(verdict_of(logs(tmp_path / "sound", name, [0, 1, 2, 3], failed=1))) == {1}


@pytest.mark.parametrize("name", ["worker-{}.log", "trainer-{}.log"])
@pytest.mark.parametrize(("ranks", "expected"), [([0, 1, 2, 3], {3}), ([0, 8, 16, 24], set())], ids=["ranks", "nodes"])
def test_the_last_rank_that_did_not_give_up_whatever_its_log_is_called(
    tmp_path: Path, name: str, ranks: list[int], expected: set[int]
) -> None:
    for number, rank in enumerate(ranks):
        steps = "".join(f"2026-08-11 16:{step // 6:02d}:{step % 6}0 it {step} loss 2.{step}\n" for step in range(20, 60))
        text = steps + (TIMED_OUT.format(rank) if number < 3 else "")
        (tmp_path / name.format(number)).write_text(text)
    assert named(verdict_of(tmp_path)) == expected


def test_a_log_keeps_the_rank_that_it_states_where_another_one_shows_that_the_numbers_are_none(tmp_path: Path) -> None:
    case = logs(tmp_path / "case", "log-{}.txt", [0, 1, 4, 3], failed=3)
    with open_case([case]) as connection:
        rows = connection.execute("SELECT path, rank FROM sources ORDER BY path").fetchall()
        ranks = connection.execute("SELECT DISTINCT rank FROM log_events ORDER BY rank").fetchall()
    assert [rank for _, rank in rows] == [0, 1, None, None]
    assert [rank for (rank,) in ranks] == [0, 1, 4, None]


def test_a_log_of_several_ranks_shows_that_the_numbers_are_of_nodes(tmp_path: Path) -> None:
    case = logs(tmp_path / "case", "worker-{}.out", [0, 1, 2, 3], failed=1)
    with (case / "worker-3.out").open("a") as log:
        log.write(TIMED_OUT.format(7))
    assert named(verdict_of(case)) == set()


AGENT = "E0611 10:00:01.1 99 torch/x/api.py:869] failed (exitcode: -9) local_rank: {} (pid: 131) of binary: /usr/bin/python\n"


@pytest.mark.parametrize(("number", "local"), [(5, 3), (3, 3), (19, 2)])
def test_what_an_agent_saw_end_is_no_rank_that_the_name_of_its_log_tells(tmp_path: Path, number: int, local: int) -> None:
    (tmp_path / f"rank{number}.log").write_text(AGENT.format(local))
    verdict = verdict_of(tmp_path)
    assert not named(verdict)
    assert "process 131" in verdict.would_change[0]


@pytest.mark.parametrize(("number", "local"), [(5, 0), (0, 3)])
def test_an_agent_of_one_process_or_of_the_first_node_tells_the_rank(tmp_path: Path, number: int, local: int) -> None:
    (tmp_path / f"rank{number}.log").write_text(AGENT.format(local))
    assert named(verdict_of(tmp_path)) == {number or local}


def test_a_process_of_an_agent_that_closed_others_may_be_of_another_node(tmp_path: Path) -> None:
    closed = "W0611 Sending process 132 closing signal SIGTERM\n"
    (tmp_path / "rank2.log").write_text(closed + AGENT.format(0))
    (tmp_path / "rank0.log").write_text(
        "[rank0]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank 0.\n"
    )
    assert not named(verdict_of(tmp_path))


MPI = "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n"
NODE = "".join(f"[rank{rank}]: step 3\n" for rank in range(8, 16))


@pytest.mark.parametrize(
    ("name", "text", "ranks"),
    [
        ("exp_rank64.out", STEPS + MPI + "Killed\n", {2}),
        ("rank1.log", NODE + "Segmentation fault (core dumped)\n", set()),
        ("lora_rank16.log", STEPS + "Killed\n", set()),
        ("qlora-rank8.log", STEPS + "[rank3]: ValueError: bad\n[rank1]: step 3\nKilled\n", {3}),
    ],
)
def test_a_log_of_several_processes_is_of_no_rank_that_its_name_has(
    tmp_path: Path, name: str, text: str, ranks: set[int]
) -> None:
    (tmp_path / name).write_text(text)
    assert named(verdict_of(tmp_path)) <= ranks


def test_a_log_of_one_rank_keeps_the_rank_of_its_name(tmp_path: Path) -> None:
    lost = "[rank{0}]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank {0}.\n"
    for rank in range(3):
        (tmp_path / f"rank{rank}.log").write_text(STEPS + (RAISED if rank == 1 else lost.format(rank)))
    assert named(verdict_of(tmp_path)) == {1}


DONE = "Training completed\n"


def dated(hour: int, text: str = "") -> str:
    return "".join(f"2026-08-11 {hour}:{step:02d}:00 it {step} loss 2.{step}\n" for step in range(10, 50)) + text


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([STEPS + DONE, STEPS + RAISED, STEPS + DONE, STEPS + DONE], set()),
        ([dated(9), dated(11, RAISED), dated(13), dated(15)], set()),
        ([dated(9), dated(9, RAISED), dated(9), dated(9)], {1}),
    ],
    ids=["others finished", "one after another", "at one time"],
)
@pytest.mark.parametrize("first", [0, 1])
def test_numbers_of_runs_are_no_ranks(tmp_path: Path, texts: list[str], expected: set[int], first: int) -> None:
    for number, text in enumerate(texts, start=first):
        (tmp_path / f"result_{number}.txt").write_text(text)
    assert named(verdict_of(tmp_path)) == {first + number for number in expected}
