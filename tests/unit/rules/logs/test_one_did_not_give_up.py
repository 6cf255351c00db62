"""Logs alone, after watchdogs gave up in several groups: the one rank that did not is named, and no GPU for an old error."""

from __future__ import annotations

import tarfile
import time
from functools import cache
from pathlib import Path

import pytest

from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.model import Cause, Confidence
from tests.recordings.verdicts import named, verdict_of
from tests.unit.simulator.small_jobs import DENSE

STUCK, STANDS = "host-hang@rank10/forward", "transmission-hang@rank10"


@cache
def made(fault: str) -> Simulation:
    return simulate(DENSE, [parse(fault)], 31, iterations=4, after_s=100)


def logs(folder: Path, fault: str) -> Path:
    """The logs that a job with this fault leaves, unpacked; its watchdogs gave up after a minute."""
    options = bundle.options_of(made(fault), by_watchdog=True, timeout_s=60.0)
    lost = losses.drawn(DENSE.parallel.world, made(fault).random("losses"), only=("logs",))
    bundle.write(made(fault), options, lost, folder / "bundle.tar")
    with tarfile.open(folder / "bundle.tar") as tar:
        tar.extractall(folder / "logs", filter="data")
    (folder / "logs" / "SHA256SUMS").unlink()
    return folder / "logs"


def without(path: Path, word: str) -> None:
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if word not in line))


def test_the_one_that_did_not_give_up(tmp_path: Path) -> None:
    (first,) = verdict_of(logs(tmp_path, STUCK)).suspects
    assert (first.ranks, first.cause, first.confidence) == ((10,), Cause.UNKNOWN, Confidence.SUSPECT)
    assert "rank 10 (its log does not say" in first.evidence[0].statement


def test_where_a_transfer_stands_all_give_up(tmp_path: Path) -> None:
    assert named(verdict_of(logs(tmp_path, STANDS))) == set()


@pytest.mark.parametrize("word", ["Watchdog caught", "NCCL INFO"])
def test_one_that_may_not_be_the_only_one(word: str, tmp_path: Path) -> None:
    """Two say nothing of a wait: one was ended before it came to it. Or nothing ties the silent log to the run."""
    folder = logs(tmp_path, STUCK)
    rank = 10 if word == "NCCL INFO" else 4
    without(folder / f"ranks/{rank}/logs/rank{rank}.log", word)
    without(folder / f"ranks/{rank}/logs/rank{rank}.log", "failure detected by watchdog")
    assert named(verdict_of(folder)) == set()


def steps(run: Simulation) -> str:
    """Lines of steps up to the standstill, with their dates."""
    ends = (run.places.start_ns + number * 10**9 for number in range(4))
    stamps = (time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(end // 10**9)) for end in ends)
    return "".join(f"{stamp} step {number + 7} | step time (ms): 1000.0\n" for number, stamp in enumerate(stamps))


@pytest.mark.parametrize(("code", "pid"), [(31, "4242"), (79, "'<unknown>'")], ids=["another-process", "days-ago"])
def test_an_error_of_a_gpu_that_the_job_went_on_after(code: int, pid: str, tmp_path: Path) -> None:
    folder, run = logs(tmp_path, STANDS), made(STANDS)
    log = folder / "ranks/15/logs/rank15.log"
    log.write_text(steps(run) + log.read_text())
    for host in run.places.hosts:
        line = f"[   100.000000] NVRM: Xid (PCI:{run.places.gpus[host.number][2].pci[:-2]}): {code}, pid={pid}, name=python\n"
        (folder / f"nodes/{host.name}/kernel/dmesg.txt").write_text(line)
    assert named(verdict_of(folder)) == set()
