"""Real processes to collect from, and real tracers that look at them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

# It runs at all times, and lets others run before it: the collector, and the other tests.
SPIN = "import os\nos.nice(15)\nprint(0, flush=True)\nwhile True: sum(range(100))"
SLEEP = "import time\nprint(0, flush=True)\ntime.sleep(600)"
# The parent of a vfork sleeps in state D until its child has ended.
VFORK = "import ctypes, time\nprint(0, flush=True)\nctypes.CDLL(None).syscall(58) or time.sleep(600)"
ATTACH, SEIZE = 16, 0x4206
TRACE = """
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
result = libc.ptrace({request}, int(sys.argv[{place}]), 0, 0)
open({said!r}, "w").write(str(ctypes.get_errno() if result else 0))
{then}
"""
STAY, LEAVE = "time.sleep(600)", "time.sleep(0.1)\nsys.exit(1)"
# A target that is left between PTRACE_ATTACH and the stop that it asks for stays stopped for ever.
ATTACH_AND_DIE = "import ctypes, os, sys\nctypes.CDLL(None).ptrace(16, int(sys.argv[5]), 0, 0)\nos._exit(1)"


@contextmanager
def running(code: str, *arguments: str, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that has said that it is there; it ends with the block, and all it has started too."""
    argv = [sys.executable, "-c", code, *arguments]
    environ = {**os.environ, **(env or {})}
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, env=environ, start_new_session=True)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def state(pid: int) -> str:
    """The letter of the state of a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def tracer(pid: int) -> int:
    """Who traces a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("TracerPid"))


def eventually(is_so: Callable[[], object], attempts: int = 12000) -> bool:
    """Whether something becomes true in a while that is much longer than it may take."""
    for _ in range(attempts):
        if is_so():
            return True
        time.sleep(0.005)
    return False


def children(pid: int) -> list[int]:
    """All living processes below a process."""
    found: list[int] = []
    level = [pid]
    while level:
        texts = []
        for one in level:
            with suppress(OSError):
                texts.append(Path(f"/proc/{one}/task/{one}/children").read_text())
        level = [int(word) for text in texts for word in text.split()]
        found.extend(level)
    return found


def script(path: Path, text: str) -> str:
    """An executable Python program."""
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    return str(path)
