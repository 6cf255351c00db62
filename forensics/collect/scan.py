"""Look at every process of the host once, in children that are given up when a process blocks its reader.

Reading the environment, command line or memory map of a process takes a lock of its address space. A process stuck in a
page fault can hold that lock for ever (this is how `ps` hangs), so no such read happens in the orchestrator.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from forensics.bundle.claims import claims_rank
from forensics.collect.child import Child, Emit
from forensics.collect.processes import ProcFs, Stat, all_stats

STALL_S = 1.0
_STARVED_S = 30.0
"""The children have the lowest priority: on a busy host they wait for a CPU, which says nothing of the process they look at."""
_MAX_STUCK = 10
_OF_FRAMEWORKS = ("/libtorch", "/jaxlib/")
"""What a process that trains has mapped: libraries of PyTorch, or of JAX (`jaxlib/libjax_common.so`)."""


@dataclass(frozen=True, slots=True)
class Process:
    """What one look at a process gave. `environ` is None when it could not be read; `error` then says why.

    `maps_framework` is None where it was not looked at. Only processes that may be ranks carry their environment.
    """

    stat: Stat
    uid: int | None = None
    cmdline: tuple[str, ...] = ()
    exe: str | None = None
    environ: Mapping[str, str] | None = None
    error: str | None = None
    maps_framework: bool | None = None
    net_ns: str | None = None

    @property
    def pid(self) -> int:
        """Process id as this host sees it."""
        return self.stat.pid

    @property
    def is_unread(self) -> bool:
        """Whether it lives and its environment could not be read: it may be any rank."""
        return self.environ is None and self.error is not None and self.stat.state not in "ZX"

    @property
    def is_python(self) -> bool:
        """Whether it runs a Python interpreter, by the name of its program."""
        return is_python(self.exe, self.cmdline)


@dataclass(frozen=True, slots=True)
class Scan:
    """All processes of the host; `unreadable` could not be looked into for want of permission, `stuck` blocked the reader."""

    processes: Mapping[int, Process] = field(default_factory=dict)
    unreadable: tuple[int, ...] = ()
    stuck: tuple[int, ...] = ()

    @property
    def stats(self) -> dict[int, Stat]:
        """The processes as `stat` saw them."""
        return {pid: process.stat for pid, process in self.processes.items()}


def is_python(exe: str | None, cmdline: Sequence[str]) -> bool:
    """Whether program or first word of the command line is a Python interpreter."""
    names = (PurePosixPath(word).name for word in (exe or "", cmdline[0] if cmdline else ""))
    return any(name.startswith(("python", "pypy")) for name in names)


def scan(
    procfs: ProcFs,
    *,
    maps_of_python: bool = False,
    stall_s: float = STALL_S,
    stopped: Callable[[], bool] = lambda: False,
) -> Scan:
    """Look at all processes. `maps_of_python` looks for libtorch in every Python process, not only in those with a rank."""
    stats = {pid: stat for pid, stat in all_stats(procfs).items() if not stat.is_kernel}
    found: dict[int, Process] = {}
    stuck: list[int] = []
    waiting = sorted(stats)
    while waiting and len(stuck) < _MAX_STUCK and not stopped():
        for row in _look(procfs, waiting, maps_of_python, stall_s):
            process = _process(stats, row)
            found[process.pid] = process
        done = set(found) | set(stuck)
        rest = [pid for pid in waiting if pid not in done]
        if not rest:
            break
        stuck.append(rest[0])
        waiting = rest[1:]
    missing = {pid: Process(stat, error="not read") for pid, stat in stats.items() if pid not in found}
    for pid in stuck:
        missing[pid] = replace(missing[pid], error="reading its environment blocked")
    processes = dict(sorted({**found, **missing}.items()))
    denied = (pid for pid, process in processes.items() if process.error == "permission denied")
    return Scan(processes, tuple(denied), tuple(stuck))


def look_at(procfs: ProcFs, pid: int, maps_of_python: bool = True) -> Process | None:
    """One process, read in this process: for tests and for a process that is known not to block."""
    rows: list[Any] = []
    _look_at(procfs, pid, maps_of_python, rows.append)
    return _process({pid: procfs.stat(pid)}, rows[0]) if rows else None


def _look(procfs: ProcFs, pids: Sequence[int], maps_of_python: bool, stall_s: float) -> Iterable[Any]:
    """Rows of one child, which goes through `pids` in order; ends early when something keeps it asleep for `stall_s`."""
    child = Child(lambda emit: _look_at_all(procfs, pids, maps_of_python, emit), deadline_s=float("inf"))
    last = awake = time.monotonic()
    while not child.ended and time.monotonic() - awake < stall_s and time.monotonic() - last < _STARVED_S:
        select.select([child.descriptor], [], [], stall_s / 4)
        for row in child.receive():
            last = awake = time.monotonic()
            if "pid" in row:
                yield row
        if not child.ended and ProcFs().stat(child.pid).state == "R":
            awake = time.monotonic()
    child.abandon()
    child.reap()


def _look_at_all(procfs: ProcFs, pids: Sequence[int], maps_of_python: bool, emit: Emit) -> None:
    for pid in pids:
        _look_at(procfs, pid, maps_of_python, emit)


def _look_at(procfs: ProcFs, pid: int, maps_of_python: bool, emit: Emit) -> None:
    """Emit what could be read of one process; nothing but its pid when it is gone."""
    row: dict[str, Any] = {"pid": pid, "error": None}
    for key, read in (
        ("uid", lambda: int(procfs.status(pid)["Uid"].split()[0])),
        ("cmdline", lambda: procfs.cmdline(pid)),
        ("exe", lambda: procfs.link(pid, "exe")),
        ("environ", lambda: procfs.environ(pid)),
    ):
        try:
            row[key] = read()
        except PermissionError:
            row["error"] = "permission denied"
        except (OSError, ValueError, KeyError, IndexError):  # gone, or a kernel that shows less
            continue
    _finish_row(procfs, pid, row, maps_of_python)
    emit(row)


def _finish_row(procfs: ProcFs, pid: int, row: dict[str, Any], maps_of_python: bool) -> None:
    """Add the memory map where it matters, and drop the environment of processes that cannot be a rank."""
    python = is_python(row.get("exe"), row.get("cmdline", ()))
    claims = claims_rank(row.get("environ") or {})
    if not claims and not python:
        row["environ"] = {} if "environ" in row else None
        return
    try:
        row["net_ns"] = procfs.link(pid, "ns/net")
    except OSError:
        row["net_ns"] = None
    if claims or maps_of_python:
        try:
            row["maps_framework"] = any(name in path for path in procfs.mapped_files(pid) for name in _OF_FRAMEWORKS)
        except OSError:
            row["maps_framework"] = None


def _process(stats: Mapping[int, Stat], row: Mapping[str, Any]) -> Process:
    return Process(
        stat=stats[row["pid"]],
        uid=row.get("uid"),
        cmdline=tuple(row.get("cmdline") or ()),
        exe=row.get("exe"),
        environ=row.get("environ"),
        error=row["error"],
        maps_framework=row.get("maps_framework"),
        net_ns=row.get("net_ns"),
    )
