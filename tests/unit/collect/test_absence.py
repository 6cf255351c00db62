from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forensics.collect.absence import MissingRank, end_of, missing_ranks
from forensics.collect.collectors.log_files import RankLogs, infer_logs
from forensics.collect.discovery import discover
from forensics.collect.scan import Scan
from tests.unit.collect.fake_proc import TICKS, FakeProc

SIGKILL, SIGSEGV_WITH_CORE, EXIT_7 = 9, 11 | 0x80, 7 << 8


def add_rank(
    proc: FakeProc, pid: int, rank: int, world: int, start: int, *, local: bool = True, addr: str = "10.0.0.1"
) -> None:
    environ: dict[str, str | int] = {"RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": addr, "MASTER_PORT": 29500}
    if local:
        environ |= {"LOCAL_RANK": rank % 4, "LOCAL_WORLD_SIZE": 4}
    proc.add(pid, 90, environ=environ, torch=True, start=start)


def missing(proc: FakeProc, own_uid: int = 0) -> dict[int, MissingRank]:
    scan = proc.scan()
    return {one.rank: one for one in missing_ranks(discover(scan, frozenset()), scan, own_uid)}


@pytest.fixture
def job(proc: FakeProc) -> FakeProc:
    """A launcher with ranks 4, 5 and 7 of 8 on the second of two nodes."""
    proc.add(90, 1, comm="torchrun", start=900)
    for rank in (4, 5, 7):
        add_rank(proc, 100 + rank, rank, 8, start=1000 + rank)
    return proc


def test_a_rank_of_this_node_without_a_process_is_absent(job: FakeProc) -> None:
    gone = missing(job)
    assert list(gone) == [6]
    assert (gone[6].state, gone[6].pid, gone[6].exit_signal) == ("absent", None, None)
    assert "4 ranks from rank 4 on" in gone[6].method


@pytest.mark.parametrize(
    ("parent", "comm", "uid", "state"),
    [(90, "trainer", None, "unknown"), (1, "python3", 0, "unknown"), (1, "sshd", None, "absent"), (1, "python3", 7, "absent")],
)
def test_a_rank_may_be_a_process_that_could_not_be_read(
    job: FakeProc, parent: int, comm: str, uid: int | None, state: str
) -> None:
    job.add(106, parent, comm=comm, start=1006)
    scan = job.scan()
    unread = replace(scan.processes[106], environ=None, uid=uid, error="reading its environment blocked")
    (gone,) = missing_ranks(discover(scan, frozenset()), Scan({**scan.processes, 106: unread}))
    assert (gone.rank, gone.state) == (6, state)
    assert ("pid 106" in gone.method) == (state == "unknown")


def test_the_only_zombie_is_the_only_missing_rank(job: FakeProc) -> None:
    job.add(106, 90, state="Z", start=1006, end=SIGKILL)
    gone = missing(job)[6]
    assert (gone.state, gone.pid, gone.exit_signal, gone.exit_code) == ("zombie", 106, 9, None)
    assert "SIGKILL" in gone.method


def test_zombies_are_distinguished_by_their_start(proc: FakeProc) -> None:
    proc.add(90, 1, comm="torchrun", start=900)
    add_rank(proc, 100, 0, 4, start=1000)
    add_rank(proc, 103, 3, 4, start=1003)
    proc.add(102, 90, state="Z", start=1002, end=EXIT_7)
    proc.add(101, 90, state="Z", start=1001, end=SIGKILL)
    gone = missing(proc)
    assert {rank: (one.pid, one.exit_signal, one.exit_code) for rank, one in gone.items()} == {
        1: (101, 9, None),
        2: (102, None, 7),
    }
    assert "start order" in gone[1].method


def test_zombies_are_not_assigned_when_ranks_did_not_start_in_order(proc: FakeProc) -> None:
    proc.add(90, 1, comm="torchrun", start=900)
    add_rank(proc, 100, 0, 4, start=1009)
    add_rank(proc, 103, 3, 4, start=1003)
    proc.add(102, 90, state="Z", start=1002, end=EXIT_7)
    proc.add(101, 90, state="Z", start=1001, end=SIGKILL)
    gone = missing(proc)
    assert {one.state for one in gone.values()} == {"absent"}
    assert all("cannot be assigned" in one.method and one.exit_signal is None for one in gone.values())


def test_the_dead_of_an_earlier_launch_and_of_other_programs_are_not_ranks(job: FakeProc) -> None:
    job.add(50, 90, state="Z", start=1000 - 301 * TICKS, end=SIGKILL)
    job.add(60, 90, state="Z", start=1006, comm="nvidia-smi")
    assert missing(job)[6].state == "absent"


def test_the_end_of_another_users_process_is_not_made_up(job: FakeProc) -> None:
    job.add(106, 90, state="Z", start=1006, uid=1000)
    gone = missing(job, own_uid=2000)[6]
    assert (gone.exit_signal, gone.exit_code) == (None, None)
    assert "may only be read" in gone.method


def test_all_ranks_are_expected_where_the_address_is_loopback(proc: FakeProc) -> None:
    proc.add(90, 1)
    add_rank(proc, 100, 0, 3, start=1000, local=False, addr="127.0.0.1")
    gone = missing(proc)
    assert {rank: one.state for rank, one in gone.items()} == {1: "absent", 2: "absent"}
    assert "MASTER_ADDR is 127.0.0.1" in gone[1].method


def test_a_rank_that_may_be_elsewhere_is_unknown(proc: FakeProc) -> None:
    proc.add(90, 1)
    add_rank(proc, 100, 0, 3, start=1000, local=False)
    gone = missing(proc)
    assert {one.state for one in gone.values()} == {"unknown"}
    assert "may be on another node" in gone[1].method


def test_as_many_dead_children_as_missing_ranks_place_the_job_here(proc: FakeProc) -> None:
    proc.add(90, 1)
    add_rank(proc, 100, 0, 2, start=1000, local=False)
    proc.add(101, 90, state="Z", start=1001, end=EXIT_7)
    assert missing(proc)[1].exit_code == 7


def test_what_a_dead_rank_left_behind_is_named(job: FakeProc) -> None:
    environ: dict[str, str | int] = {
        "RANK": 6,
        "WORLD_SIZE": 8,
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": 29500,
        "LOCAL_RANK": 2,
        "LOCAL_WORLD_SIZE": 4,
    }
    job.add(500, 1, environ=environ, torch=True, comm="pt_data_worker", start=3000)
    gone = missing(job)[6]
    assert gone.orphans == (500,)
    assert "pid 500" in gone.method


@pytest.mark.parametrize(
    ("status", "expected"),
    [(SIGKILL, (9, None)), (SIGSEGV_WITH_CORE, (11, None)), (EXIT_7, (None, 7)), (0, (None, 0))],
)
def test_wait_statuses(status: int, expected: tuple[int | None, int | None]) -> None:
    assert end_of(status, readable=True)[:2] == expected


def logs(*paths: tuple[int, int | None, str]) -> list[RankLogs]:
    return [RankLogs(rank, local, (path,)) for rank, local, path in paths]


@pytest.mark.parametrize(
    ("known", "rank", "local", "expected"),
    [
        (logs((0, None, "/out/rank0.log"), (1, None, "/out/rank1.log")), 2, None, ("/out/rank2.log",)),
        (logs((8, 0, "/out/0/stderr.log"), (9, 1, "/out/1/stderr.log")), 10, 2, ("/out/2/stderr.log",)),
        (logs((0, None, "/out/rank000.log"), (11, None, "/out/rank011.log")), 7, None, ("/out/rank007.log",)),
        (logs((1, None, "/data1/rank1.log"), (2, None, "/data1/rank2.log")), 3, None, ("/data1/rank3.log",)),
        (logs((1, None, "/data1/rank1.log")), 3, None, ("/data1/rank3.log",)),
        (logs((0, None, "/out/a.log"), (1, None, "/out/b.log")), 2, None, ()),
        ([], 2, 2, ()),
    ],
)
def test_the_log_of_a_missing_rank_is_named_like_the_others(
    known: list[RankLogs], rank: int, local: int | None, expected: tuple[str, ...], tmp_path: Path
) -> None:
    assert infer_logs(rank, local, known) == expected
