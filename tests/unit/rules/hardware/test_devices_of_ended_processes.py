"""A process that its launcher saw end, and whose device the driver says failed under it, by its number."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Cause, Outcome
from tests.recordings.verdicts import named, verdict_of

XID = "[88120.4] NVRM: Xid (PCI:0000:{bus}:00): {code}, pid={pid}, name=python, {what}\n"
AGENT = (
    "terminate called after throwing an instance of 'c10::Error'\n"
    "W0911 07:02:11.4 700 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 701 closing signal SIGTERM\n"
    "E0911 07:02:14.1 700 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: {code}) local_rank: 2 "
    "(pid: 703) of binary: /usr/bin/python\n"
)
OTHERS = "".join(XID.format(bus=f"{bus}b", code=45, pid=pid, what="Ch 00000008") for bus, pid in ((1, 701), (2, 702), (9, 704)))


def xid(code: int = 95, pid: int = 703) -> str:
    return XID.format(bus="4e", code=code, pid=pid, what="Uncontained ECC error.")


def judged(folder: Path, kernel: str, launcher: str) -> set[int]:
    (folder / "dmesg.txt").write_text(kernel)
    (folder / "job.log").write_text("step 7 loss 2.1\n" + launcher)
    return named(verdict_of(folder))


@pytest.mark.parametrize("code", [-6, 1])
def test_the_process_whose_device_failed(tmp_path: Path, code: int) -> None:
    assert judged(tmp_path, xid() + OTHERS, AGENT.format(code=code)) == {2}
    verdict = verdict_of(tmp_path)
    assert verdict.suspects[0].cause is Cause.GPU_FAULT
    assert not [label for label in verdict.labels if "nothing tells which rank" in label.reason]


@pytest.mark.parametrize(
    ("kernel", "launcher"),
    [
        (xid(pid=799), AGENT.format(code=-6)),
        (xid(code=45), AGENT.format(code=-6)),
        (xid(code=13), AGENT.format(code=-6)),
        (xid(), AGENT.format(code=-15)),
        (xid(), "--nnodes=2 --node_rank=1\n" + AGENT.format(code=-6)),
    ],
    ids=["another process", "a clean-up", "of a program", "told to end", "of one of two nodes"],
)
def test_errors_that_are_not_of_the_process(tmp_path: Path, kernel: str, launcher: str) -> None:
    assert not judged(tmp_path, kernel + OTHERS, launcher)


GAVE_UP = (
    "[rank{0}]:[E624 18:54:21.1 ProcessGroupNCCL.cpp:629] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=91, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600031 milliseconds\n"
)
FAULT = "[Wed Jun 24 18:44:20 2026] NVRM: Xid (PCI:0000:{0}a:00): 31, pid={1}, name=python3, Ch 2, intr 0. MMU Fault: ENGINE\n"
TABLE = "  PID  PPID STAT CMD\n" + "".join(f"{701 + n} 650 Sl /usr/bin/python3 fit.py --local_rank={n}\n" for n in range(4))


def stuck(folder: Path, faults: str, world: int, late: tuple[int, ...]) -> set[int]:
    """A folder of `dmesg -T`, a table of processes and a log in which all but some ranks give up waiting."""
    (folder / "dmesg.txt").write_text(faults)
    (folder / "ps.txt").write_text(TABLE)
    said = "".join(GAVE_UP.format(rank) for rank in range(4) if rank not in late)
    (folder / "train.log").write_text(f"dist_world_size={world}\nstep 7 loss 2.1\n{said}")
    verdict = verdict_of(folder)
    return {rank for suspect in verdict.suspects if suspect.cause is Cause.GPU_FAULT for rank in suspect.ranks}


def test_the_process_of_a_rank_that_the_driver_names_without_a_time_zone(tmp_path: Path) -> None:
    assert stuck(tmp_path, FAULT.format(9, 703), 4, late=(2,)) == {2}


@pytest.mark.parametrize(
    ("faults", "world", "late"),
    [
        (FAULT.format(9, 799), 4, (2,)),
        (FAULT.format(9, 702), 4, (2,)),
        (FAULT.format(9, 703), 8, (2,)),
        ("".join(FAULT.format(n, 701 + n) for n in range(4)), 4, ()),
    ],
    ids=["another process", "a rank that waits", "a table of one of two nodes", "all of them"],
)
def test_faults_of_programs_that_explain_nothing(tmp_path: Path, faults: str, world: int, late: tuple[int, ...]) -> None:
    assert not stuck(tmp_path, faults, world, late)


def test_a_table_of_processes_without_a_time_takes_nothing_from_a_log(tmp_path: Path) -> None:
    (tmp_path / "ps.txt").write_text(TABLE)
    (tmp_path / "job.log").write_text("dist_world_size=4\nstep 7 loss 2.1\n" + AGENT.format(code=-9))
    verdict = verdict_of(tmp_path)
    assert (named(verdict), verdict.outcome) == ({2}, Outcome.FAILSTOP)
