"""Logs of the collector inside the ranks, `<host>.<rank>.<pid>.<start>.frx` in `<folder>/<job>/` (docs/formats/shim-log.md).

The folder is that of `FORENSICS_SHIM_DIR` of the rank, else /dev/shm/forensics; the file is still there when the process is
gone, as long as its host or container is. A file is copied while its process writes to it: its layout is made for that. Much of
it is zero, so each copy is compressed.
"""

from __future__ import annotations

import os
import re
import stat as stat_module
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from forensics.bundle.layout import Status, member_name, node_path, rank_path
from forensics.collect.compressed import copied
from forensics.collect.processes import ProcFs
from forensics.collect.record import Run, failure
from forensics.collect.target import Context, Target, visible_path

ID = "shim.log"
DEFAULT_FOLDER = "/dev/shm/forensics"
LIBRARY = "forensics_shim"
MOST_BYTES = 256 << 20
"""A log is never larger."""
MOST_LOGS = 4
"""Logs taken of one rank: its process, and what else ran under its number."""
MOST_LEFT = 128
"""Logs taken of a host without ranks."""
_JOB_VARIABLES = ("FORENSICS_SHIM_JOB", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
_NAME = re.compile(r".+\.(?P<rank>\d+|x)\.(?P<pid>\d+)\.(?P<start>\d+)(?:-\d+)?\.(?P<ending>frx|off|tmp)")
_UNFINISHED = {"off": "its process recorded nothing, or lost its log; the file says why", "tmp": "its process died while it made the log"}
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file that was found: its name inside the job, as it can be opened, and what the name says."""

    name: str
    path: Path
    rank: int | None
    pid: int
    start_ticks: int
    ending: str
    modified_ns: int
    uid: int


def folder_of(environ: Mapping[str, str]) -> str:
    """Where a process with this environment puts its log."""
    return f"{environ.get('FORENSICS_SHIM_DIR') or DEFAULT_FOLDER}/{job_name(environ)}"


def job_name(environ: Mapping[str, str]) -> str:
    """Name of the folder of the job, as the writer makes it: cut like its field in the head, with safe characters only."""
    name = next((environ[variable] for variable in _JOB_VARIABLES if environ.get(variable)), "job")
    safe = _UNSAFE.sub("_", name.encode("utf-8", "surrogateescape")[:63].decode("latin-1"))
    return "_" + safe[1:] if safe.startswith(".") else safe


def loaded_by(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Variables that load the collector into a process."""
    return tuple(name for name in ("LD_PRELOAD", "NCCL_PROFILER_PLUGIN") if LIBRARY in environ.get(name, ""))


def find_logs(folder: Path, name: str) -> list[LogFile]:
    """Files of logs in one folder, newest first; `name` is the folder as the job sees it. Raises OSError."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            match = _NAME.fullmatch(entry.name)
            if match is None or not entry.is_file(follow_symlinks=False):
                continue
            facts = entry.stat(follow_symlinks=False)
            rank = int(match["rank"]) if match["rank"] != "x" else None
            numbers = (int(match["pid"]), int(match["start"]))
            found.append(
                LogFile(
                    f"{name}/{entry.name}",
                    folder / entry.name,
                    rank,
                    *numbers,
                    match["ending"],
                    facts.st_mtime_ns,
                    facts.st_uid,
                )
            )
    return sorted(found, key=lambda log: (-log.modified_ns, log.name))


def collect_logs(context: Context, target: Target, sample: int) -> Iterator[Run]:
    """The logs of one rank, dead or alive: that of its process first, then the newest of its number."""
    witness = target.pid if target.pid is not None and target.state == "alive" else target.witness
    name = folder_of(target.environ)
    folder = visible_path(context.procfs, witness, name) if witness is not None else Path(name)
    try:
        found = find_logs(folder, name)
    except OSError as error:
        yield _nothing(target, *failure(error, name))
        return
    own = own_pids(context.procfs, target.pid) if target.pid is not None else ()
    chosen = choose(target, [log for log in found if log.rank == target.rank], own)
    for log in chosen:
        yield copy_log(context, target.rank, log, rank_path(target.rank, "shim"))
    if not chosen:
        older = any(log.rank == target.rank for log in found)
        why = "only logs of other users or earlier runs" if older else f"no log of rank {target.rank}"
        yield _nothing(target, Status.NOT_FOUND, f"{name}: {why}")


def own_pids(procfs: ProcFs, pid: int) -> frozenset[int]:
    """Numbers of a process in its namespaces: the log carries the innermost."""
    try:
        words = procfs.status(pid).get("NSpid", "").split()
    except OSError:
        words = []
    return frozenset({pid, *(int(word) for word in words if word.isdecimal())})


def own_log(procfs: ProcFs, pid: int, logs: Iterable[LogFile]) -> LogFile | None:
    """The newest log of a running process."""
    start, own = procfs.stat(pid).start_ticks, own_pids(procfs, pid)
    return next((log for log in logs if log.pid in own and log.start_ticks == start), None)


def choose(target: Target, logs: Sequence[LogFile], pids: Iterable[int]) -> list[LogFile]:
    """Logs that may be of this rank in this run: its own user's, not older than the run, those of its process first.

    A collector that runs as root must not be led to another user's file by a name.
    """
    own = set(pids)
    fitting = [log for log in logs if target.uid in (None, 0, log.uid) and log.modified_ns >= target.since_ns]
    first = [log for log in fitting if log.pid in own and target.start_ticks in (None, log.start_ticks)]
    return [*first, *(log for log in fitting if log not in first)][:MOST_LOGS]


def collect_left(context: Context, folder: Path = Path(DEFAULT_FOLDER)) -> Iterator[Run]:
    """The newest job of a host without ranks: the newest log of each rank."""
    try:
        jobs = [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
        found = [find_logs(job, job.as_posix()) for job in jobs]
    except OSError as error:
        status, reason = failure(error, folder.as_posix())
        yield Run(ID, None, status, reason)
        return
    newest = max((logs for logs in found if logs), key=lambda logs: logs[0].modified_ns, default=[])
    of_ranks = {log.rank: log for log in reversed(newest)}
    for log in sorted(of_ranks.values(), key=lambda log: log.name)[:MOST_LEFT]:
        yield copy_log(context, None, log, node_path(context.node, "shim"))
    if not newest:
        yield Run(ID, None, Status.NOT_FOUND, f"no log in {folder}")


def copy_log(context: Context, rank: int | None, log: LogFile, folder: str) -> Run:
    """Copy one log, compressed; a file that changed its kind or owner meanwhile is not taken."""
    try:
        descriptor = os.open(log.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return Run(ID, rank, *failure(error, log.name), pid=log.pid)
    with FileIO(descriptor, "rb") as stream:
        facts = os.fstat(descriptor)
        if not stat_module.S_ISREG(facts.st_mode) or facts.st_uid != log.uid:
            return Run(ID, rank, Status.NOT_FOUND, f"{log.name} is not the plain file it was", pid=log.pid)
        member = f"{folder}/{member_name(log.path.name)}.zst"
        said = _UNFINISHED.get(log.ending)
        status = Status.OK if log.ending == "frx" else Status.PARTIAL
        run = Run(ID, rank, status, f"{log.name}: {said}" if said else None, pid=log.pid)
        return copied(context.staging, run, stream, member, log.name, MOST_BYTES)


def _nothing(target: Target, status: Status, reason: str) -> Run:
    """Without the variables that load it, there is nothing to be found; with them its absence is worth a look."""
    loaded = loaded_by(target.environ)
    if status is Status.NOT_FOUND and not loaded:
        reason = f"the collector was not loaded: neither LD_PRELOAD nor NCCL_PROFILER_PLUGIN names it ({reason})"
        return Run(ID, target.rank, Status.NOT_CONFIGURED, reason, pid=target.pid)
    hint = "; no NCCL call was made yet, or the folder could not be written" if status is Status.NOT_FOUND else ""
    return Run(ID, target.rank, status, f"{reason}{hint}", pid=target.pid)
