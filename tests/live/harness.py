"""Starts a job of several ranks as an outsider sees it: separate processes, one log a rank, a worker-server socket a rank.

The inputs decide what goes wrong, the training scripts do not know. Every process of a job is killed on the way out.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

JOBS = Path(__file__).parent / "jobs"
TICKS = os.sysconf("SC_CLK_TCK")
PR_SET_PDEATHSIG = 1
START_LIMIT_S = 180.0
HANG_LIMIT_S = 90.0
QUIET_S = 3.0
QUIET_CPU_S = 0.5
PORTS = (10_000, 30_000)
# Once in some dozens of killed peers this thread never sleeps again, though its rank waits (torch 2.13, gloo over TCP).
SOCKET_LOOPS = frozenset({"gloo_tcp_loop"})


class DumpRequest(Enum):
    """How a job lets an outsider read its Flight Recorder."""

    SERVER = "worker server"
    PIPE = "dump pipe"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Job:
    """A running job; `processes[rank]` is the trainer of that rank."""

    folder: Path
    port: int
    processes: tuple[subprocess.Popen[bytes], ...]

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(process.pid for process in self.processes)

    def log(self, rank: int) -> Path:
        return self.folder / f"rank{rank}.log"

    def socket(self, rank: int) -> Path:
        return self.folder / f"worker{rank}.sock"

    def lines(self, rank: int) -> int:
        return self.log(rank).read_bytes().count(b"\n")

    def states(self) -> tuple[str | None, ...]:
        """Kernel state letter of each rank, None for one that is gone."""
        return tuple(state_of(pid) for pid in self.pids)

    def cpu_seconds(self) -> float:
        return sum(cpu_seconds(pid) for pid in self.pids)

    def wait_steps(self, count: int, limit_s: float = START_LIMIT_S) -> None:
        """Wait until every rank has printed at least `count` lines."""
        ranks = range(len(self.processes))
        wait_for(lambda: all(self.lines(rank) >= count for rank in ranks), limit_s, lambda: f"{count} lines\n{self.tails()}")

    def wait_hang(self, limit_s: float = HANG_LIMIT_S) -> None:
        """Wait until no log grew and next to no CPU time was used for a while."""
        since, before = time.monotonic(), self._progress()
        deadline = since + limit_s
        while time.monotonic() - since < QUIET_S:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the job still moves\n{self.tails()}")
            time.sleep(0.2)
            now = self._progress()
            if now[0] != before[0] or now[1] - before[1] > QUIET_CPU_S:
                since, before = time.monotonic(), now

    def tails(self) -> str:
        ranks = range(len(self.processes))
        return "\n".join(f"--- rank {rank}\n{self.log(rank).read_text(errors='replace')[-800:]}" for rank in ranks)

    def _progress(self) -> tuple[tuple[int, ...], float]:
        return tuple(self.log(rank).stat().st_size for rank in range(len(self.processes))), self.cpu_seconds()


@contextmanager
def launch(
    script: str,
    arguments: Sequence[str] = (),
    *,
    world: int = 4,
    env: Mapping[str, str] | None = None,
    dumps: DumpRequest = DumpRequest.SERVER,
) -> Iterator[Job]:
    """Run `jobs/<script>` on `world` ranks until the block ends."""
    port = free_port()
    shared = {**os.environ, **(env or {}), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(JOBS / script), *arguments]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="job-", ignore_cleanup_errors=True)))
        envs = [shared | rank_env(folder, rank, dumps) for rank in range(world)]
        ranks = [stack.enter_context(running_rank(folder / f"rank{rank}.log", command, env)) for rank, env in enumerate(envs)]
        yield Job(folder, port, tuple(ranks))


@contextmanager
def running_rank(log: Path, command: Sequence[str], env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """One trainer in a process group of its own, which outlives it as long as a child does."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=die_with_the_parent
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def die_with_the_parent() -> None:
    """A hung job never ends by itself, so a killed test run must not leave one behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def rank_env(folder: Path, rank: int, dumps: DumpRequest) -> dict[str, str]:
    own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    if dumps is DumpRequest.SERVER:
        own["TORCH_WORKER_SERVER_SOCKET"] = str(folder / f"worker{rank}.sock")
    if dumps is DumpRequest.PIPE:
        own["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] = str(folder / "dump")
        own["TORCH_FR_DUMP_TEMP_FILE"] = str(folder / "trace_")
    return own


def free_port() -> int:
    """A port below those that the kernel gives to connections: none of a job beside this one takes it before it is used."""
    while True:
        port = random.randrange(*PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def stat(task: Path) -> tuple[str, list[str]] | None:
    """Name of a process or thread and the fields of its `stat` from the state on; None once it is gone."""
    try:
        name, _, fields = (task / "stat").read_text().partition("(")[2].rpartition(")")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return name, fields.split()


def state_of(pid: int) -> str | None:
    found = stat(Path(f"/proc/{pid}"))
    return found[1][0] if found else None


def cpu_seconds(pid: int) -> float:
    """Processor time of a process without that of its socket loops."""
    threads = [found for task in Path(f"/proc/{pid}/task").glob("*") if (found := stat(task))]
    return sum(int(fields[11]) + int(fields[12]) for name, fields in threads if name not in SOCKET_LOOPS) / TICKS


def wait_for(condition: Callable[[], bool], limit_s: float, describe: Callable[[], str]) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not reached in {limit_s:.0f} s: {describe()}")
        time.sleep(0.1)
