"""What a collector is given: the rank it looks at, where it may write, and how far it may go."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from forensics.collect.processes import ProcFs, Stat, descendants
from forensics.collect.staging import Staging


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits and choices of one collection; times in seconds, sizes in bytes.

    `interval_s` lies between two samples on average, `seed` decides how unevenly.
    `nccl_ras` is None to ask NCCL's RAS service where its version is known to stand that, else whether to ask it.
    """

    interval_s: float = 1.0
    samples: int = 6
    recorder_gap_s: float = 5.0
    children: int = 64
    threads: int = 2048
    at_once: int = 4
    stack_s: float = 5.0
    answer_s: float = 5.0
    dump_wait_s: float = 20.0
    log_head: int = 1 << 20
    log_tail: int = 4 << 20
    recorder_bytes: int = 1 << 30
    text_bytes: int = 64 << 20
    use_pipe: bool = True
    ask_sockets: bool = False
    nccl_ras: bool | None = None
    seed: int = field(default_factory=lambda: random.getrandbits(32))


@dataclass(frozen=True, slots=True)
class Context:
    """What all collectors of one collection share. `sysfs` and `procfs` can be replaced by trees of a test."""

    staging: Staging
    node: str
    settings: Settings = field(default_factory=Settings)
    procfs: ProcFs = field(default_factory=ProcFs)
    sysfs: Path = Path("/sys")
    py_spy: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """One rank as the collectors see it; `pid` is None when it has no process.

    For a rank without a process `environ` is that of a living rank of its job, and `witness` is that rank's process:
    paths are resolved in its file system. `since_ns` is the start of the rank, or of its job, on CLOCK_REALTIME: what
    is older is of an earlier run. `extra` are processes of the rank that are no longer below it, `started` other ranks that
    are. `start_ticks` shows its process from a later one that was given the same pid.
    """

    rank: int
    state: str
    pid: int | None = None
    witness: int | None = None
    witness_rank: int | None = None
    uid: int | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    since_ns: int = 0
    extra: tuple[int, ...] = ()
    shared_logs: Mapping[str, str] = field(default_factory=dict)
    guessed_logs: tuple[str, ...] = ()
    start_ticks: int | None = None
    started: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Tree:
    """The processes of a rank: `root` (None for a dead rank), then its children, nearest first; `cut` were left out."""

    root: int | None
    children: tuple[int, ...]
    cut: int

    @property
    def pids(self) -> tuple[int, ...]:
        """Root and children."""
        return (*(() if self.root is None else (self.root,)), *self.children)


def process_tree(target: Target, stats: Mapping[int, Stat], limit: int) -> Tree:
    """The processes of a rank as they are now, at most `limit` children."""
    root = target.pid if target.pid is not None and _is_same(target, stats.get(target.pid)) else None
    children = descendants(stats, root, target.started) if root is not None else []
    for pid in target.extra:
        if pid in stats:
            children.extend(one for one in (pid, *descendants(stats, pid)) if one not in children)
    return Tree(root, tuple(children[:limit]), max(0, len(children) - limit))


def _is_same(target: Target, stat: Stat | None) -> bool:
    return stat is not None and target.start_ticks in (None, stat.start_ticks)


def visible_path(procfs: ProcFs, pid: int, path: str) -> Path:
    """A path of a process as this process can open it: below the other's root, or its working directory when relative.

    Where the other's root may not be used, both are taken to share one: the collector then runs in the job's container.
    """
    if not path.startswith("/"):
        return procfs.path(pid, "cwd") / path
    try:
        procfs.link(pid, "root")
    except PermissionError:
        return Path(path)
    except OSError:
        pass
    return procfs.path(pid, "root") / path.lstrip("/")


def start_ns(stat: Stat) -> int:
    """When a process started, on CLOCK_REALTIME in ns; good to a clock tick."""
    booted = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return booted + stat.start_ticks * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))
