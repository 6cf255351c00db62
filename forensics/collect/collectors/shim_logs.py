"""Logs of the collector inside the ranks, `<host>.<rank>.<pid>.<start>.frx` in `<folder>/<job>/` (docs/formats/shim-log.md).

The folder is that of `FORENSICS_SHIM_DIR` of the rank, else /dev/shm/forensics-<uid>; the file is still there when the process
is gone, as long as its host or container is. A file is copied while its process writes to it: its layout is made for that.
Much of it is zero, so each copy is compressed.
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
MEMORY, DISK = "/dev/shm", "/tmp"
"""Where the writer makes folders of its own: the default, and where notes go when no other place can be used."""
LIBRARY = "forensics_shim"
MOST_BYTES = 256 << 20
"""A log is never larger."""
MOST_LOGS = 4
"""Logs taken of one rank: its process, and what else ran under its number."""
MOST_LEFT = 128
"""Logs taken of a host without ranks."""
_JOB_VARIABLES = ("FORENSICS_SHIM_JOB", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
_NAME = re.compile(r".+\.(?P<rank>\d+|x)\.(?P<pid>\d+)\.(?P<start>\d+)(?:-\d+)?\.(?P<ending>frx|off|tmp)")
_UNFINISHED = {
    "off": "its process recorded nothing, or lost its log; the file says why",
    "tmp": "its process died while it made the log",
}
_OWN = re.compile(r"forensics(-\d+)?")
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


def default_folder(uid: int, below: str = MEMORY) -> str:
    """The folder that the writer makes for itself; `uid` is that inside the process's user namespace."""
    return f"{below}/forensics-{uid}"


def default_folders(below: Path, uid: int | None = None) -> list[Path]:
    """Folders of the writer that are there, of one user or of all. By owner: the name has the number inside a user namespace.

    The folder without a number is one that an administrator made for all. Links are left.
    """
    try:
        with os.scandir(below) as entries:
            found = [entry for entry in entries if _OWN.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)]
            return sorted(Path(one.path) for one in found if uid is None or one.stat(follow_symlinks=False).st_uid == uid)
    except OSError:
        return []


def folder_of(environ: Mapping[str, str], uid: int) -> str:
    """Where a process with this environment puts its log; behind the name may stand what tells jobs of one name apart."""
    return f"{environ.get('FORENSICS_SHIM_DIR') or default_folder(uid)}/{job_name(environ)}"


def job_name(environ: Mapping[str, str]) -> str:
    """Name of the job, as the writer makes it: cut like its field in the head, with safe characters only."""
    variable = next((name for name in _JOB_VARIABLES if environ.get(name)), None)
    name = environ[variable] if variable else "job"
    if variable == "TORCHELASTIC_RUN_ID" and name == "none":
        name = "torchrun"
    safe = _UNSAFE.sub("_", name.encode("utf-8", "surrogateescape")[:63].decode("latin-1"))
    return "_" + safe[1:] if safe.startswith(".") else safe


def find_job(procfs: ProcFs, pid: int | None, environ: Mapping[str, str], uid: int | None) -> list[LogFile]:
    """Logs of the job of a process, newest first: those in its own folder where its log shows which, else all of that name.

    Raises OSError when the folder of logs cannot be read.
    """
    name, jobs = job_name(environ), dict[str, list[LogFile]]()
    for root, is_wanted in _roots(procfs, pid, environ, uid):
        try:
            for folder in _job_folders(root[1], name):
                jobs.setdefault(folder.name, []).extend(find_logs(folder, f"{root[0]}/{folder.name}"))
        except OSError:
            if is_wanted:
                raise
    own = next((logs for logs in jobs.values() if pid is not None and _holds(procfs, pid, logs)), None)
    logs = own if own is not None else [log for found in jobs.values() for log in found]
    return sorted(logs, key=lambda log: (-log.modified_ns, log.name))


def _roots(
    procfs: ProcFs, pid: int | None, environ: Mapping[str, str], uid: int | None
) -> Iterator[tuple[tuple[str, Path], bool]]:
    """Folders that may hold folders of jobs, as the job names them and as they can be opened; the first kind must be there."""

    def seen(name: str) -> Path:
        return visible_path(procfs, pid, name) if pid is not None else Path(name)

    wanted = environ.get("FORENSICS_SHIM_DIR")
    if wanted:
        yield (wanted, seen(wanted)), True
    for below in (MEMORY, DISK):
        for folder in default_folders(seen(below), uid):
            yield (f"{below}/{folder.name}", folder), False


def _job_folders(root: Path, name: str) -> list[Path]:
    with os.scandir(root) as entries:
        found = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    return sorted(folder for folder in found if folder.name == name or folder.name.startswith(f"{name}-"))


def _holds(procfs: ProcFs, pid: int, logs: Iterable[LogFile]) -> bool:
    try:
        return own_log(procfs, pid, logs) is not None
    except OSError:
        return False


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
    name = folder_of(target.environ, target.uid or 0)
    try:
        found = find_job(context.procfs, witness, target.environ, target.uid)
    except OSError as error:
        yield _nothing(target, *failure(error, name))
        return
    own = own_pids(context.procfs, target.pid) if target.pid is not None else ()
    chosen = choose(target, [log for log in found if log.rank == target.rank], own)
    for log in chosen:
        yield copy_log(context, target.rank, log, rank_path(target.rank, "shim"))
    if not chosen:
        older = any(log.rank == target.rank for log in found)
        why = "only logs of other users or earlier runs" if older else "no log of the rank"
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


def collect_left(context: Context, *folders: Path) -> Iterator[Run]:
    """The newest job of a host without ranks: the newest log of each rank. Without folders: of all users."""
    try:
        roots = folders or (*default_folders(Path(MEMORY)), *default_folders(Path(DISK)))
        jobs = [Path(entry.path) for root in roots for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False)]
        found = [find_logs(job, job.as_posix()) for job in jobs]
    except OSError as error:
        yield Run(ID, None, *failure(error, ", ".join(map(str, folders)) or MEMORY))
        return
    newest = max((logs for logs in found if logs), key=lambda logs: logs[0].modified_ns, default=[])
    of_ranks = {log.rank: log for log in reversed(newest)}
    for log in sorted(of_ranks.values(), key=lambda log: log.name)[:MOST_LEFT]:
        yield copy_log(context, None, log, node_path(context.node, "shim"))
    if not newest:
        yield Run(ID, None, Status.NOT_FOUND, f"no log in {', '.join(map(str, roots)) or f'{MEMORY}/forensics-*'}")


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
