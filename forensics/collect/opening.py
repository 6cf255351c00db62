"""Open a file of the job so that nothing happens but reading.

To open a device may do something (a watchdog begins to count, a tape rewinds), and a pipe that is opened for reading lets
its writer go on, who is killed when the reader leaves. What a path leads to is therefore looked at before it is opened.
"""

from __future__ import annotations

import errno
import os
import stat as stat_module
from pathlib import Path


class NotAPlainFileError(OSError):
    """The path leads to a device, pipe, socket or folder."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "not a plain file", str(path))


def open_plain_file(path: Path, *, follow: bool = True) -> int:
    """A descriptor to read a plain file.

    Raises NotAPlainFileError for anything else, OSError with ELOOP for a link that is not to be followed, or OSError.
    """
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    try:
        mode = os.fstat(handle).st_mode
        if stat_module.S_ISLNK(mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        if not stat_module.S_ISREG(mode):
            raise NotAPlainFileError(path)
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except PermissionError as error:
        raise PermissionError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(handle)


class RefusedError(Exception):
    """A file is there but is not taken; says why."""


def check_owner(found: os.stat_result, name: str, uid: int | None) -> None:
    """Raise RefusedError for a file of another user: a link or a variable of the job may lead a collector that is root."""
    if uid and found.st_uid != uid:
        raise RefusedError(f"{name} belongs to uid {found.st_uid}, not to uid {uid} of the job")
