"""Lists of core dumps: whose process a fault ended, and what is from before the job."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.model import Cause
from tests.recordings.verdicts import named, verdict_of
from tests.unit.ingest.reading import read

HEADING = "TIME                            PID  UID  GID SIG     COREFILE EXE                        SIZE\n"
STARTED = "".join(f"[2026-09-30 17:55:0{r}] INFO rank={r} world=4 pid={5100 + r} device=cuda:{r}\n" for r in range(4))
STEPS = "".join(f"[2026-09-30 18:0{step}:00] INFO step {step} loss 2.{step}\n" for step in range(4))
GAVE_UP = (
    "[rank{0}]:[E930 18:14:50.1 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=88, OpType=ALLREDUCE, NumelIn=10, NumelOut=10, Timeout(ms)=600000) ran for 600012 milliseconds\n"
)


def row(pid: int, signal: str = "SIGSEGV", day: str = "Wed 2026-09-30") -> str:
    return f"{day} 18:04:44 UTC   {pid} 1000 1000 {signal} present  /opt/conda/bin/python3.10  2.1G\n"


def judged(folder: Path, table: str) -> Path:
    log = STARTED + STEPS + "".join(GAVE_UP.format(rank) for rank in (0, 1, 3))
    (folder / "train.log").write_text(log)
    (folder / "coredumpctl.txt").write_text(HEADING + table)
    return folder


def test_faults_of_a_process_are_distinguished_from_its_aborts() -> None:
    rows = read(
        ("$ coredumpctl list\n" + HEADING + row(41) + row(42, "SIGABRT") + row(43, "SIGTRAP")).encode(), "cores.txt"
    ).rows("log_events")
    assert [(each["kind"], each["subject"]) for each in rows] == [("segfault", "41")]


def test_the_rank_whose_process_left_a_core_is_named(tmp_path: Path) -> None:
    verdict = verdict_of(judged(tmp_path, row(5102) + row(5100, "SIGABRT")))
    assert (named(verdict), verdict.suspects[0].cause) == ({2}, Cause.PROCESS_DEAD)


@pytest.mark.parametrize("table", [row(5102, day="Wed 2026-08-26"), row(4102), row(5102, "SIGABRT")])
def test_cores_of_earlier_jobs_of_others_and_of_aborts_tell_of_no_end(tmp_path: Path, table: str) -> None:
    with open_case([judged(tmp_path, table)]) as connection:
        rows = connection.execute("SELECT rank FROM log_events WHERE kind = 'segfault' AND rank IS NOT NULL").fetchall()
    assert rows == []
