"""What may happen to a log while its job runs: cut, removed, its folder gone. The job goes on, and what is left says why."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from forensics.shim.status import statuses
from tests.native.shim_guests import clean_environment, notes, running, wait_for
from tests.native.shim_jobs import HERE, compile_c, double, linked
from tests.unit.ingest.reading import read

CUT, REMOVED = 12, 13
SIGBUS_CODE = 128 + signal.SIGBUS


@pytest.fixture(scope="module")
def guests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("guests")
    return compile_c(folder / "guests", [HERE / "guests.c"], *linked(double(folder)))


def test_a_log_that_is_cut_to_nothing_costs_the_log_only(guests: Path, shim: Path, tmp_path: Path) -> None:
    with running(guests, shim, tmp_path) as job:
        os.truncate(job.log(), 0)
        wait_for(lambda: notes(job.logs))
        out = job.end()
    assert f"faults=0 child=0 foreign={SIGBUS_CODE}" in out  # in a child too, a fault of its own ends as ever
    assert CUT in notes(tmp_path / "logs")
    (note,) = list((tmp_path / "logs").rglob("*.off"))
    assert "cut" in read(note.read_bytes(), note.name).problems[0].message


def test_a_log_that_is_cut_in_half_is_read_up_to_the_cut(guests: Path, shim: Path, tmp_path: Path) -> None:
    with running(guests, shim, tmp_path) as job:
        path = job.log()
        os.truncate(path, path.stat().st_size // 2 + 123)
        wait_for(lambda: next(statuses([path])).state == "stopped")
        job.end()
    log = read(path.read_bytes(), path.name)
    said = " ".join(problem.message for problem in log.problems)
    assert "cut:" in said and "the file was cut while it was in use" in said
    assert log.config()["shim.state"] == "stopped"


def test_a_log_that_is_emptied_again_and_again(guests: Path, shim: Path, tmp_path: Path) -> None:
    with running(guests, shim, tmp_path) as job:
        path = job.log()
        size = path.stat().st_size
        for _ in range(50):
            os.truncate(path, 0)
            os.truncate(path, size)
        job.end()


def test_the_handler_of_the_job_goes_on_with_its_own_faults(guests: Path, shim: Path, tmp_path: Path) -> None:
    with running(guests, shim, tmp_path, "handle,fault") as job:
        os.truncate(job.log(), 0)
        wait_for(lambda: notes(job.logs))
        assert "faults=1 child=0 foreign=4" in job.end()


def test_a_fault_of_the_job_still_ends_it(guests: Path, shim: Path, tmp_path: Path) -> None:
    with running(guests, shim, tmp_path, "fault") as job:
        assert job.process.wait() == -signal.SIGBUS


def test_a_signal_that_somebody_sends_still_ends_it(guests: Path, shim: Path, tmp_path: Path) -> None:
    with running(guests, shim, tmp_path) as job:
        job.process.send_signal(signal.SIGBUS)
        assert job.process.wait() == -signal.SIGBUS


def test_a_log_that_is_removed_can_be_read_through_its_process(guests: Path, shim: Path, tmp_path: Path) -> None:
    with running(guests, shim, tmp_path) as job:
        path = job.log()
        path.unlink()
        wait_for(lambda: notes(job.logs))
        folder = Path(f"/proc/{job.process.pid}/fd")
        (left,) = [entry for entry in folder.iterdir() if path.stem in str(entry.readlink())]
        log = read(left.read_bytes(), path.name)
        assert log.rows("operations") and any("was removed" in problem.message for problem in log.problems)
        job.end()
    assert REMOVED in notes(tmp_path / "logs")


def test_a_folder_that_is_removed_comes_back_with_a_note(guests: Path, shim: Path, tmp_path: Path) -> None:
    """As RemoveIPC= of systemd does with what a user has in /dev/shm when the last session ends."""
    with running(guests, shim, tmp_path) as job:
        shutil.rmtree(job.logs)
        wait_for(lambda: job.logs.exists() and notes(job.logs))
        job.end()
    assert REMOVED in notes(tmp_path / "logs")


def test_a_job_that_closes_all_descriptors(guests: Path, shim: Path, tmp_path: Path) -> None:
    """Its number may belong to another file by now, which is neither cut nor closed for it."""
    with running(guests, shim, tmp_path, "close") as job:
        path = job.log()
        job.end()
    assert read(path.read_bytes(), path.name).config()["shim.state"] == "ended"


def test_the_handler_can_be_left_out(guests: Path, shim: Path, tmp_path: Path) -> None:
    with running(guests, shim, tmp_path, FORENSICS_SHIM_SIGBUS="0") as job:
        caught = int(
            next(line for line in Path(f"/proc/{job.process.pid}/status").read_text().splitlines() if "SigCgt" in line)[8:], 16
        )
        assert caught >> (signal.SIGBUS - 1) & 1 == 0
        job.end()


@pytest.mark.parametrize("start", ["import faulthandler; faulthandler.enable()", ""])
def test_python_with_its_fault_handler(guests: Path, shim: Path, tmp_path: Path, start: str) -> None:
    """Enabled before the first call, faulthandler is passed on to and the cut is survived."""
    nccl = guests.parent / "libnccl.so.2"
    program = f"""{start}
import ctypes, os, pathlib, sys, time
nccl = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
shim = ctypes.CDLL(sys.argv[2])
class Id(ctypes.Structure): _fields_ = [("internal", ctypes.c_char * 128)]
id, comm = Id(), ctypes.c_void_p()
shim.ncclGetUniqueId(ctypes.byref(id))
shim.ncclCommInitRank(ctypes.byref(comm), 2, id, 0)
(log,) = pathlib.Path(sys.argv[3]).rglob("*.frx")
os.truncate(log, 0)
for _ in range(1000):
    assert shim.ncclAllReduce(None, None, ctypes.c_size_t(1), 7, 0, comm, None) == 0
"""
    import sys

    variables = {**clean_environment(), "FORENSICS_SHIM_DIR": str(tmp_path), "LD_PRELOAD": f"{shim}:{nccl}"}
    command = [sys.executable, "-S", "-c", program, str(nccl), str(shim), str(tmp_path)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
