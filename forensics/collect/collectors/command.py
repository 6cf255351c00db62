"""Run one program of the host with a deadline, its output bounded and kept out of pipes that could fill up."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from forensics.collect.confinement import before_exec

# Started in the shell of a job, a program must not take LD_PRELOAD, a rank or a debug setting from it.
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
_SYSTEM_FOLDERS = ("/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin")
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Result:
    """How a program ended: `code` is None when it was out of time and was killed without being waited for."""

    code: int | None
    output: bytes
    errors: str
    truncated: bool = False


def find_program(name: str) -> str | None:
    """Path of a program on PATH or in the usual folders of a system."""
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(_SYSTEM_FOLDERS))


def start_program(
    argv: Sequence[str], output: IO[bytes], errors: IO[bytes], *, forbid: bool = False, held: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a program in the C locale that is killed with this process; `forbid` keeps it from ptrace and signals.

    It inherits the descriptors `held`. Raises OSError when it cannot start.
    """
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment |= {"LC_ALL": "C", "PAGER": "cat", "SYSTEMD_PAGER": ""}
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env=environment,
            pass_fds=held,
            preexec_fn=before_exec(forbid),
        )
    except subprocess.SubprocessError as error:
        raise OSError(f"{argv[0]} could not be confined: {error}") from error


def run_program(argv: Sequence[str], timeout_s: float, folder: Path, limit: int) -> Result:
    """Run a program with a deadline; `folder` holds its output while it runs. Raises OSError when it cannot start."""
    with tempfile.TemporaryFile(dir=folder) as output, tempfile.TemporaryFile(dir=folder) as errors:
        process = start_program(argv, output, errors)
        deadline = time.monotonic() + timeout_s
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if process.poll() is None:
            process.kill()
        output.seek(0)
        errors.seek(0)
        content = output.read(limit + 1)
        said = errors.read(1 << 14).decode("utf-8", "replace").strip()
        return Result(process.returncode, content[:limit], said, len(content) > limit)
