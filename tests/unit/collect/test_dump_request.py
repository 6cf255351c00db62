"""A byte for the pipe of a rank goes to that rank or to nobody, and none is left behind: real pipes and processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from forensics.bundle.layout import Status
from forensics.collect.collectors.fr_pipe import collect_pipe
from forensics.collect.processes import ProcFs
from forensics.collect.record import Run
from forensics.collect.target import Context, Target
from tests.unit.collect.real_processes import SLEEP, eventually, running, state

# As DumpPipe of torch: unlink, mkfifo, open without blocking, and read up to 128 bytes now and then.
MONITOR = """
import os, sys, time
pipe, dump, reads = sys.argv[1:]
os.mkfifo(pipe)
descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
print(0, flush=True)
while True:
    try:
        content = os.read(descriptor, 128) if reads == "reads" else b""
    except BlockingIOError:
        content = b""
    if content:
        open(dump + ".new", "wb").write(b"dump after " + content)
        os.rename(dump + ".new", dump)
    time.sleep(0.02)
"""


@pytest.fixture
def real(context: Context) -> Context:
    return replace(context, procfs=ProcFs(), settings=replace(context.settings, dump_wait_s=0.5))


@contextmanager
def monitored(folder: Path, reads: str = "reads") -> Iterator[int]:
    """A rank 3 with a monitor thread that reads its pipe, or never does."""
    with running(MONITOR, str(folder / "p3.pipe"), str(folder / "d3"), reads) as process:
        yield process.pid


def ask(context: Context, folder: Path, pid: int) -> Run:
    environ = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{folder}/p", "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/d"}
    (run,) = collect_pipe(context, Target(3, "alive", pid, environ=environ), 0)
    return run


def unread(pipe: Path) -> bytes:
    """What a later reader would find."""
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(reader, 128)
    except BlockingIOError:
        return b""
    finally:
        os.close(reader)


def test_the_rank_that_reads_gets_one_byte_and_dumps(real: Context, tmp_path: Path) -> None:
    patient = replace(real, settings=replace(real.settings, dump_wait_s=60.0))
    with monitored(tmp_path) as pid:
        run = ask(patient, tmp_path, pid)
    assert (run.status, run.path) == (Status.OK, "ranks/3/fr/pipe.d3")
    assert (real.staging.root / "ranks/3/fr/pipe.d3").read_bytes() == b"dump after 1"


def test_a_pipe_that_another_process_reads_gets_nothing(real: Context, tmp_path: Path) -> None:
    with monitored(tmp_path), running(SLEEP) as rank:
        run = ask(real, tmp_path, rank.pid)
        assert run.status is Status.NOT_FOUND
        assert f"is read by another process, not by process {rank.pid}" in str(run.reason)
        assert not eventually((tmp_path / "d3").exists, attempts=40)


def test_a_pipe_that_nobody_reads_gets_nothing_for_a_later_process(real: Context, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p3.pipe")
    with running(SLEEP) as rank:
        assert ask(real, tmp_path, rank.pid).status is Status.NOT_FOUND
    assert unread(tmp_path / "p3.pipe") == b""


def test_a_byte_that_is_not_read_is_taken_back(real: Context, tmp_path: Path) -> None:
    with monitored(tmp_path, "never") as pid:
        run = ask(real, tmp_path, pid)
        assert run.status is Status.TIMEOUT
        assert "was not read, and the request was taken back" in str(run.reason)
        assert unread(tmp_path / "p3.pipe") == b""


def test_a_second_request_is_not_put_behind_one_that_waits(real: Context, tmp_path: Path) -> None:
    with monitored(tmp_path, "never") as pid:
        writer = os.open(tmp_path / "p3.pipe", os.O_WRONLY | os.O_NONBLOCK)
        os.write(writer, b"x")
        run = ask(real, tmp_path, pid)
        os.close(writer)
        assert run.status is Status.TIMEOUT
        assert "holds an earlier request" in str(run.reason)
        assert unread(tmp_path / "p3.pipe") == b"x"


def test_a_stopped_rank_is_not_asked_to_dump_when_it_goes_on(real: Context, tmp_path: Path) -> None:
    with monitored(tmp_path) as pid:
        os.kill(pid, signal.SIGSTOP)
        assert eventually(lambda: state(pid) == "T")
        run = ask(real, tmp_path, pid)
        assert run.status is Status.SKIPPED_BY_POLICY
        os.kill(pid, signal.SIGCONT)
        assert not eventually((tmp_path / "d3").exists, attempts=40)


@pytest.mark.parametrize("kind", ["file", "link to a file", "link to a pipe"])
def test_what_stands_in_the_place_of_the_pipe_is_not_written_to(real: Context, tmp_path: Path, kind: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    os.mkfifo(elsewhere) if "pipe" in kind else elsewhere.write_bytes(b"keep")
    elsewhere.rename(tmp_path / "p3.pipe") if kind == "file" else (tmp_path / "p3.pipe").symlink_to(elsewhere)
    with running(SLEEP) as rank:
        run = ask(real, tmp_path, rank.pid)
    assert run.status is Status.UNSUPPORTED
    assert "is not a named pipe" in str(run.reason)
    if kind != "link to a pipe":
        assert (tmp_path / "p3.pipe").read_bytes() == b"keep"
