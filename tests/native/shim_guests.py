"""Jobs in private file systems of memory, as containers have them, and jobs whose log something happens to while they run."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.native.shim_jobs import files

MIB = 1 << 20
DEADLINE_S = 30.0


def clean_environment() -> dict[str, str]:
    """The environment without what names a job, a rank or the collector."""
    names = (
        "FORENSICS_",
        "LD_PRELOAD",
        "SLURM_",
        "TORCHELASTIC_",
        "MASTER_",
        "OMPI_",
        "PMI_",
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
    )
    return {key: value for key, value in os.environ.items() if not key.startswith(names)}


def mounted(command: Sequence[object], at: Path, size: str, options: str = "") -> list[str]:
    """The command, in a mount namespace of its own with a file system of memory of that size."""
    script = f'mount -t tmpfs -o size={size},mode=1777{options} tmpfs "$0" && exec "$@"'
    return ["unshare", "-m", "sh", "-c", script, str(at), *map(str, command)]


def need_mounts() -> None:
    """Skip where this user may not mount."""
    try:
        done = subprocess.run(mounted(["true"], Path("/mnt"), "1m"), capture_output=True, check=False)
    except OSError as error:
        pytest.skip(f"unshare: {error}")
    if done.returncode != 0:
        pytest.skip(f"mounting is not permitted: {done.stderr.decode(errors='replace').strip()}")


def wait_for(what: Callable[[], object]) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def notes(folder: Path) -> list[int]:
    """Reasons of the notes below a folder."""
    texts = [path.read_text() for path in files(folder) if path.suffix == ".off"]
    return [int(number) for text in texts for number in re.findall(r"reason=(\d+)", text)]


@dataclass
class Job:
    """A job that calls NCCL until it is asked to stop."""

    process: subprocess.Popen[str]
    folder: Path
    logs: Path

    def log(self) -> Path:
        """Its log."""
        (path,) = [path for path in files(self.logs) if path.suffix == ".frx"]
        return path

    def end(self) -> str:
        """Tell it to stop; it must have been answered on every call. Returns what it prints."""
        time.sleep(0.3)  # it goes on for some sweeps of the heartbeat
        (self.folder / "stop").touch()
        out, err = self.process.communicate(timeout=DEADLINE_S)
        assert (self.process.returncode, err) == (0, "")
        assert int(out.split()[0]) > 0
        return out


@contextmanager
def running(program: Path, shim: Path, folder: Path, what: str = "", **environment: str) -> Iterator[Job]:
    """Start the job of guests.c and wait until it calls."""
    work, logs = folder / "work", folder / "logs"
    work.mkdir()
    variables = {**clean_environment(), "FORENSICS_SHIM_DIR": str(logs), "LD_PRELOAD": str(shim), **environment}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([program, work, what], env=variables, text=True, **pipes)  # type: ignore[call-overload]
    try:
        wait_for(lambda: (work / "ready").exists() or process.poll() is not None)
        yield Job(process, work, logs)
    finally:
        process.kill()
        process.wait()
