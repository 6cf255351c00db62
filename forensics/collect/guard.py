"""Set a process going again that a killed tracer left stopped, where the tracer could not be kept from ptrace.

The guard is a process of its own that outlives the collector. It holds one end of a pipe whose other end only the collector
and the tracer hold; when both are gone, it looks. It continues a process only that ran before, is the same, is traced by
nobody and is stopped now. A process that was stopped before is evidence, and stays as it is.
"""

from __future__ import annotations

import os
import signal
import time

from forensics.collect.processes import ProcFs, Stat

_MOST_DESCRIPTORS = 1 << 16
_CHECKS = 25
_CHECK_S = 0.02


def start_guard(procfs: ProcFs, pid: int) -> int:
    """The end of the pipe that collector and tracer hold; the guard acts when all its copies are closed."""
    before = procfs.stat(pid)
    read_end, write_end = os.pipe()
    middle = os.fork()
    if middle == 0:
        try:
            os.close(write_end)
            if os.fork() == 0:  # the guard is nobody's child, so that nobody has to wait for it
                _keep(procfs, before, read_end)
        finally:
            os._exit(0)
    os.waitpid(middle, 0)
    os.close(read_end)
    return write_end


def why_not_traceable(procfs: ProcFs, pid: int) -> str | None:
    """Why a process must not be given to a program that might attach to it."""
    tracer = tracer_of(procfs, pid)
    if tracer:
        return f"process {pid} is traced by process {tracer}"
    if procfs.stat(pid).state == "D":
        return f"process {pid} is in uninterruptible sleep (state D)"
    return None


def tracer_of(procfs: ProcFs, pid: int) -> int:
    """Pid of the process that traces another; 0 for none."""
    text = procfs.status(pid).get("TracerPid", "0")
    return int(text) if text.isdecimal() else 0


def _keep(procfs: ProcFs, before: Stat, read_end: int) -> None:
    os.closerange(0, read_end)  # other guards' pipes, and the one by which the collector's end is seen
    os.closerange(read_end + 1, _MOST_DESCRIPTORS)
    os.setsid()  # what is sent to the group of the collector is not for the guard
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    while os.read(read_end, 1):
        pass
    for _ in range(_CHECKS):
        if _was_left_stopped(procfs, before):
            os.kill(before.pid, signal.SIGCONT)
            return
        time.sleep(_CHECK_S)  # the kernel detaches a dead tracer after it has closed its files


def _was_left_stopped(procfs: ProcFs, before: Stat) -> bool:
    try:
        now = procfs.stat(before.pid)
        is_same = now.start_ticks == before.start_ticks
        return is_same and before.state not in "Tt" and now.state == "T" and not tracer_of(procfs, before.pid)
    except (OSError, ValueError, IndexError):
        return False
