"""What a sleeping process waits on, read from real processes."""

from __future__ import annotations

import fcntl
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forensics.collect.collectors.waited_files import waited_files
from forensics.collect.processes import ProcFs

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="numbers of its system calls unknown")
LISTEN = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); "


@contextmanager
def running(code: str, stdin: int = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", code], stdin=stdin, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def waited(process: subprocess.Popen[str]) -> list[str] | None:
    """What it waits on as soon as it does so in two looks: a read of a module that it imports is soon over."""
    procfs = ProcFs()
    before = None
    for _ in range(200):
        found = waited_files(procfs, process.pid, platform.machine(), procfs.text(process.pid, "syscall"))
        if found and found == before:
            return found
        before = found
        time.sleep(0.02)
    return None


def test_standard_input() -> None:
    with running("input()") as process:
        assert process.stdin is not None
        assert waited(process) == [f"0 -> {ProcFs().link(os.getpid(), f'fd/{process.stdin.fileno()}')}"]


def test_a_named_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "shard")
    with running(f"open({str(tmp_path / 'shard')!r}, 'r+b', buffering=0).read(1)", subprocess.DEVNULL) as process:
        found = waited(process) or []
        assert [entry.partition(" -> ")[2] for entry in found] == [str(tmp_path / "shard")]


@pytest.mark.parametrize(
    ("wait", "stated"),
    [
        ("s.accept()", "tcp listening 127.0.0.1:{}"),
        ("c = socket.create_connection(s.getsockname()); c.recv(1)", "tcp to 127.0.0.1:{}"),
        ("c = socket.create_connection(s.getsockname()); c.settimeout(600); c.recv(1)", "tcp to 127.0.0.1:{}"),
        ("import select; e = select.epoll(); e.register(s); e.poll()", "tcp listening 127.0.0.1:{}"),
    ],
)
def test_sockets(wait: str, stated: str) -> None:
    with running(LISTEN + wait, subprocess.DEVNULL) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert [entry.partition(" -> ")[2] for entry in waited(process) or []] == [stated.format(port)]


@pytest.mark.parametrize("call", ["flock", "lockf"])
def test_the_lock_of_a_file_and_who_holds_it(tmp_path: Path, call: str) -> None:
    with (tmp_path / "cache.lock").open("w") as held:
        getattr(fcntl, call)(held, fcntl.LOCK_EX)
        with running(f"import fcntl; fcntl.{call}(open({held.name!r}, 'w'), fcntl.LOCK_EX)") as process:
            found = waited(process) or []
    assert [entry.partition(" -> ")[2] for entry in found] == [f"{held.name} locked by pid {os.getpid()}"]


@pytest.mark.parametrize("line", [None, "", "running", "-1 0x7ff 0x7ff", "202 0x7f", "9999 0x0", "0"])
def test_other_calls_wait_on_no_file(line: str | None) -> None:
    assert waited_files(ProcFs(), os.getpid(), "x86_64", line) is None


def test_an_unknown_machine_tells_nothing() -> None:
    assert waited_files(ProcFs(), os.getpid(), "riscv64", "63 0x0") is None
