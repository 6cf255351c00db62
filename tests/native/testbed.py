"""Runs jobs on the stand-in hardware of native/testbed: builds it, starts one process per rank, waits, and reads what is true.

The caller gives what a site would give (LD_PRELOAD, NCCL_PROFILER_PLUGIN); the faults and the truth go through variables that
only the stand-ins read. See docs/testbed.md.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).parents[2] / "native/testbed"
FLAGS = ["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-fPIC", "-pthread"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined", "-O0"]
FOLDERS = ("common", "gpu", "verbs", "nccl", "framework", "host", "trainer")
INCLUDES = [f"-I{SOURCES / folder}" for folder in FOLDERS]
FUNCS = (
    "Broadcast",
    "Reduce",
    "AllGather",
    "ReduceScatter",
    "AllReduce",
    "SendRecv",
    "Send",
    "Recv",
    "AlltoAll",
    "Gather",
    "Scatter",
)
DOINGS = ("nothing", "starting", "forward", "backward", "gradients", "barrier", "blocked", "done")
STATIC = ("static_exported", "static_hidden")


def _run(*command: str, folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:6])} ...\n{done.stderr}")


def _compile(folder: Path, name: str, flags: Sequence[str]) -> list[str]:
    """The object files of one source folder."""
    objects = folder / "objects" / name
    objects.mkdir(parents=True)
    sources = sorted((SOURCES / name).glob("*.c"))
    _run("cc", *flags, *INCLUDES, "-c", *map(str, sources), folder=objects)
    return [str(objects / f"{source.stem}.o") for source in sources]


def build(folder: Path, *, sanitize: bool = False) -> Path:
    """Builds the libraries and the trainer into `folder`; static variants of the framework into folders of their own there."""
    flags = [*FLAGS, *(SANITIZE if sanitize else [])]
    with ThreadPoolExecutor(2) as pool:
        objects = dict(zip(FOLDERS, pool.map(lambda name: _compile(folder, name, flags), FOLDERS), strict=True))
    common, linking = objects["common"], [*(SANITIZE[:1] if sanitize else []), "-pthread", "-ldl", f"-L{folder}"]
    strict = ["-shared", "-Wl,--no-undefined", *([] if sanitize else ["-Wl,--as-needed"])]

    def library(name: str, *inputs: str) -> None:
        soname = f"-Wl,-soname,{Path(name).name}"
        _run("cc", *strict, soname, "-o", str(folder / name), *inputs, *common, *linking, folder=folder)

    library("libtestbed_gpu.so", *objects["gpu"])
    library("libtestbed_host.so", *objects["host"])
    verbs = [f"-Wl,--version-script={SOURCES / 'verbs/libibverbs.map'}"]
    library("libibverbs.so.1", *objects["verbs"], *verbs)
    nccl = [f"-Wl,--version-script={SOURCES / 'nccl/libnccl.map'}", "-ltestbed_gpu"]
    library("libnccl.so.2", *objects["nccl"], *nccl)
    library("libtestbed_framework.so", *objects["framework"], "-l:libnccl.so.2", "-ltestbed_gpu")
    hidden = f"-Wl,--version-script={SOURCES / 'framework/hidden.map'}"
    for variant in () if sanitize else STATIC:
        (folder / variant).mkdir()
        extra = [hidden] if variant == "static_hidden" else []
        library(f"{variant}/libtestbed_framework.so", *objects["framework"], *objects["nccl"], "-ltestbed_gpu", *extra)
    _run("cc", "-o", str(folder / "testbed_trainer"), *objects["trainer"], *common, *linking, folder=folder)
    return folder


@functools.cache
def built(sanitize: bool = False) -> Path:
    """The test bed, built once per test process and removed at its end."""
    folder = Path(tempfile.mkdtemp(prefix="testbed-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return build(folder, sanitize=sanitize)


class Place(NamedTuple):
    """What the host code of a rank does, and a counter that any movement of the rank raises."""

    pid: int
    step: int
    microbatch: int
    doing: str
    progress: int


class Call(NamedTuple):
    """A call of the public interface that carries data."""

    comm: int
    elements: int
    func: str
    datatype: int
    peer: int
    depth: int


class Work(NamedTuple):
    """A kernel of the communication library on a stream; moved and total count the pieces of its lanes."""

    comm: int
    func: str
    number: int
    started: int
    finished: int
    moved: int
    total: int


class Step(NamedTuple):
    """The counters of one operation, channel, peer and direction of the proxy."""

    comm: int
    number: int
    channel: int
    is_send: int
    peer: int
    total: int
    posted: int
    ready: int
    transmitted: int
    received: int
    flushed: int
    done: int
    pid: int


class Pair(NamedTuple):
    """What a queue pair carried."""

    number: int
    device: int
    destination: int
    other: int
    sends: int
    signaled: int
    send_cqes: int
    recvs: int
    recv_cqes: int
    errors: int
    first_status: int
    executed: int
    bytes: int


def _rows(path: Path, layout: str) -> Iterator[tuple[int, ...]]:
    """The rows of a truth file: a header of 64 bytes with their number, then rows of 64 bytes."""
    if not path.exists():
        return
    data = path.read_bytes()
    (count,) = struct.unpack_from("<Q", data)
    for row in range(min(count, len(data) // 64 - 1)):
        yield struct.unpack_from(layout, data, 64 * (row + 1))


@dataclass(slots=True)
class Job:
    """A running job: one process per rank, connected by `folder` alone."""

    folder: Path
    processes: list[subprocess.Popen[bytes]]

    def places(self) -> list[Place]:
        """What each rank does now."""
        board = self.folder / "board"
        data = board.read_bytes() if board.exists() else b""
        data = data.ljust(64 * len(self.processes), b"\0")
        rows = [struct.unpack_from("<iiiiQ", data, 64 * rank) for rank in range(len(self.processes))]
        return [Place(pid, step, microbatch, DOINGS[doing], progress) for pid, step, microbatch, doing, progress in rows]

    def log(self, rank: int) -> str:
        """What a rank has printed."""
        return (self.folder / f"{rank}.log").read_text()

    def calls(self, rank: int) -> list[Call]:
        """The calls of a rank in order."""
        return [Call(c, n, FUNCS[f], *rest) for c, n, f, *rest in _rows(self.folder / f"truth/{rank}.calls", "<QQiiii")]

    def works(self, rank: int) -> list[Work]:
        """The kernels of a rank in order of their launch."""
        return [Work(c, FUNCS[f], *rest) for c, f, *rest in _rows(self.folder / f"truth/{rank}.works", "<QiIIIII")]

    def steps(self, rank: int) -> list[Step]:
        """The proxy's operations of a rank in order of their launch."""
        return [Step(*row) for row in _rows(self.folder / f"truth/{rank}.steps", "<QIhhiIIIIIIIi")]

    def pairs(self, rank: int) -> list[Pair]:
        """The queue pairs of a rank in order of their creation."""
        return [Pair(*row) for row in _rows(self.folder / f"truth/{rank}.qps", "<IIIiIIIIIIIIQ")]

    def stuck(self, rank: int) -> list[Work]:
        """The kernels of a rank that have started and not finished."""
        return [work for work in self.works(rank) if work.started and not work.finished]

    def until(self, holds: Callable[[], bool], seconds: float = 60) -> None:
        """Waits until something holds."""
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                raise TimeoutError(f"it never held; places: {self.places()}")
            time.sleep(0.02)

    def until_hung(self, holds: Callable[[], bool] = lambda: True, quiet: float = 1.0, seconds: float = 90) -> None:
        """Waits until no rank has moved for `quiet` seconds while something held."""
        end = time.monotonic() + seconds
        last, since = [-1], time.monotonic()
        while time.monotonic() - since < quiet or not holds():
            now = [place.progress for place in self.places()]
            if now != last:
                last, since = now, time.monotonic()
            if time.monotonic() > end:
                raise TimeoutError(f"it did not hang; places: {self.places()}")
            time.sleep(0.05)

    def finish(self, seconds: float = 90) -> list[int]:
        """Waits for all ranks; their exit statuses, negative for a signal."""
        end = time.monotonic() + seconds
        return [process.wait(max(0.0, end - time.monotonic())) for process in self.processes]

    def kill(self) -> None:
        """Ends every rank that still runs, stopped ones too."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a job. Ranks are spread over hosts of `per_host`; between hosts data goes over the wire."""

    pp: int = 1
    dp: int = 1
    tp: int = 1
    per_host: int = 1
    steps: int = 3
    microbatches: int = 4
    more: Mapping[str, int | str] = field(default_factory=dict)

    @property
    def world(self) -> int:
        return self.pp * self.dp * self.tp

    def arguments(self) -> list[str]:
        """The trainer's command line."""
        sizes: dict[str, int | str] = {"pp": self.pp, "dp": self.dp, "tp": self.tp, "steps": self.steps}
        sizes |= {"microbatches": self.microbatches, **self.more}
        return [part for name, value in sizes.items() for part in (f"--{name}", str(value))]


def start(
    built: Path, folder: Path, shape: Shape, fault: str = "", env: Mapping[str, str] | None = None, static: str = ""
) -> Job:
    """Starts a job in an empty `folder`: logs, truth and the files that connect the ranks go there.

    `fault` is what native/testbed/common/fault.h describes; `env` is added to the environment of every rank; `static` names
    a variant of STATIC.
    """
    (folder / "truth").mkdir(parents=True)
    libraries = os.pathsep.join([*([str(built / static)] if static else []), str(built)])
    shared = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": libraries, "TESTBED_DIR": str(folder), "TESTBED_FAULT": fault}
    shared |= {
        "TESTBED_TRUTH": str(folder / "truth"),
        "WORLD_SIZE": str(shape.world),
        "TESTBED_DIE_WITH_PARENT": "1",
        "LOCAL_WORLD_SIZE": str(shape.per_host),
    }
    processes = []
    for rank in range(shape.world):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank % shape.per_host), **shared, **(env or {})}
        with (folder / f"{rank}.log").open("wb") as log:
            command = [str(built / "testbed_trainer"), *shape.arguments()]
            processes.append(subprocess.Popen(command, env=own, stdout=log, stderr=subprocess.STDOUT))
    return Job(folder, processes)
