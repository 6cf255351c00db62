"""Ask for a dump through a named pipe: one byte, to the reader it is meant for or to nobody.

A byte that nobody reads stays in the pipe and makes somebody dump later. So it is written only when the process itself has
the pipe open for reading, runs, and has read what was asked before; and it is taken back when the process does not read it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat as stat_module
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from forensics.bundle.layout import Status
from forensics.collect.permissions import why_denied
from forensics.collect.processes import ProcFs

_READABLE = 0o400  # in the mode of a link of /proc/PID/fd
_BYTE = b"1"  # any byte: DumpPipe reads up to 128 and dumps when there was one


class NotAskedError(Exception):
    """Nothing was written; the text says what of the pipe forbids it."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """A byte in a pipe, which `handle` leads to without holding an end of it."""

    handle: int

    def take_back(self) -> bool:
        """Read the byte where the process has not read it; whether it was still there."""
        try:
            reader = os.open(f"/proc/self/fd/{self.handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # it may be written only: what is in it stays
            return False
        try:
            return bool(os.read(reader, len(_BYTE)))
        except BlockingIOError:  # somebody else holds it open for writing
            return False
        finally:
            os.close(reader)


@contextmanager
def request(procfs: ProcFs, pid: int, path: Path) -> Iterator[Request]:
    """A byte written to the pipe that a process reads. Raises NotAskedError, or OSError; ENXIO means that nobody reads."""
    handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)  # opens nothing yet, and stays the same file
    try:
        found = os.fstat(handle)
        if not stat_module.S_ISFIFO(found.st_mode):
            raise NotAskedError(Status.UNSUPPORTED, "is not a named pipe")
        descriptor = os.open(f"/proc/self/fd/{handle}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _check(procfs, pid, found, descriptor)
            os.write(descriptor, _BYTE)
        finally:
            os.close(descriptor)  # at once: to a reader that does not expect it, an open writer is an error
        yield Request(handle)
    finally:
        os.close(handle)


def _check(procfs: ProcFs, pid: int, pipe: os.stat_result, descriptor: int) -> None:
    try:
        is_reader = _reads(procfs, pid, pipe)
    except PermissionError:
        raise NotAskedError(Status.PERMISSION, f"was left alone: {why_denied(procfs, pid, 'see the open files')}") from None
    if not is_reader:
        raise NotAskedError(Status.NOT_FOUND, f"is read by another process, not by process {pid} of this rank")
    state = procfs.stat(pid).state
    if state in "Tt":
        raise NotAskedError(
            Status.SKIPPED_BY_POLICY, f"was left alone: process {pid} is stopped and would dump when it goes on"
        )
    if _unread(descriptor):
        raise NotAskedError(Status.TIMEOUT, "holds an earlier request: its monitor thread has stopped reading")


def _reads(procfs: ProcFs, pid: int, pipe: os.stat_result) -> bool:
    """Whether a process has a pipe open for reading."""
    for number in procfs.descriptors(pid):
        link = procfs.path(pid, f"fd/{number}")
        try:
            same = os.path.samestat(link.stat(), pipe)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                raise
            continue
        if same and link.lstat().st_mode & _READABLE:
            return True
    return False


def _unread(descriptor: int) -> int:
    """Bytes in a pipe."""
    count: int = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0\0\0\0"))[0]
    return count
