"""A piece of work in a child process that can always be given up: own session, own deadline, never waited for.

The orchestrator forks and must therefore have no threads. A child sends JSON lines through a pipe as it goes, so that what
it found before it was stopped is kept. At the deadline its process group gets SIGTERM, after a grace SIGKILL; a child that
sleeps in the kernel cannot be reaped even then and is left behind. A child is killed with the orchestrator, whatever ends that.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from forensics.collect.confinement import end_with

Emit = Callable[[Any], None]
"""Send one JSON document to the orchestrator."""

TERM_GRACE_S = 2.0
KILL_GRACE_S = 1.0


class Child:
    """A running child: read its documents with `receive`, stop it with `press`."""

    def __init__(self, work: Callable[[Emit], None], deadline_s: float) -> None:
        self.began = time.monotonic()
        self.deadline = self.began + deadline_s
        self.expired = False
        self._signals_sent = 0
        self._buffer = b""
        self.pid, self.descriptor = _fork(work)
        self._open = True

    def receive(self) -> Iterator[Any]:
        """Documents that arrived since the last call; does not block."""
        while self._open:
            try:
                data = os.read(self.descriptor, 1 << 16)
            except BlockingIOError:
                break
            if not data:
                self._close()
            self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        yield from (orjson.loads(line) for line in lines)

    @property
    def ended(self) -> bool:
        """Whether nothing more will come: the child closed its pipe, or was abandoned."""
        return not self._open

    def press(self, now: float, stop: bool = False) -> None:
        """Move on towards the end when the deadline has passed or `stop` is set: SIGTERM, SIGKILL, abandon."""
        if stop and self._signals_sent == 0:
            self.deadline = min(self.deadline, now)
        if not self._open or now < self.deadline:
            return
        self.expired = True
        if self._signals_sent == 2:
            self._close()
            return
        self._send((signal.SIGTERM, signal.SIGKILL)[self._signals_sent])
        self.deadline = now + (TERM_GRACE_S, KILL_GRACE_S)[self._signals_sent]
        self._signals_sent += 1

    def abandon(self) -> None:
        """Kill it and expect nothing more."""
        self._send(signal.SIGKILL)
        if self._open:
            self._close()

    def reap(self) -> bool:
        """Collect the exit status if there is one; true when there is nothing left to collect."""
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] != 0
        except ChildProcessError:
            return True

    def _send(self, number: signal.Signals) -> None:
        for target in (os.killpg, os.kill):  # the group does not exist before the child has called setsid
            try:
                target(self.pid, number)
            except OSError:
                continue
            return

    def _close(self) -> None:
        self._open = False
        os.close(self.descriptor)


def _fork(work: Callable[[Emit], None]) -> tuple[int, int]:
    parent = os.getpid()
    read_end, write_end = os.pipe()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    pid = os.fork()
    if pid == 0:
        _be_child(work, parent, read_end, write_end)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    os.close(write_end)
    os.set_blocking(read_end, False)
    return pid, read_end


def _be_child(work: Callable[[Emit], None], parent: int, read_end: int, write_end: int) -> None:
    """The whole life of the child; it never returns into the orchestrator's code."""
    code = 70
    try:
        end_with(parent)
        os.setsid()
        os.setpriority(os.PRIO_PROCESS, 0, 19)  # the job comes first
        yield_memory()
        os.close(read_end)
        _quiet()
        work(lambda document: _send_line(write_end, document))
        code = 0
    except BaseException as error:  # the orchestrator must learn of it, whatever it is
        _send_line(write_end, {"failure": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(code)


def yield_memory() -> None:
    """Be the first that the kernel ends when memory runs out: never the job for the sake of a collector."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_bytes(b"1000")


def _quiet() -> None:
    """Default signals, and no terminal or pipe of the user that an abandoned child would keep open."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)


def _send_line(descriptor: int, document: Any) -> None:
    data = memoryview(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
    while data:
        data = data[os.write(descriptor, data) :]
