"""Checks of one running process: is the collector loaded into it, which NCCL does it use, and what does its log say."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from forensics.collect.collectors.shim_logs import find_job, folder_of, own_log
from forensics.collect.collectors.versions import rank_versions
from forensics.collect.processes import ProcFs
from forensics.collect.target import visible_path
from forensics.shim.doctor import Check, Health, linking, plugin_support, recorder_settings
from forensics.shim.elf import nccl_version, needed
from forensics.shim.host_access import dump_place
from forensics.shim.launch import LIBRARY
from forensics.shim.live_dumps import live_dumps
from forensics.shim.status import LogStatus, statuses

_NCCL = re.compile(r"/libnccl\.so[\d.]*$")
_TORCH_CUDA = "/libtorch_cuda.so"
_START = "start the job with `forensics shim run -- ...` or the variables of `forensics shim env`"


def process_checks(pid: int, procfs: ProcFs | None = None) -> Iterator[Check]:
    """All checks of a process; one that says why when it cannot be looked at."""
    fs = procfs or ProcFs()
    try:
        environ, mapped = fs.environ(pid), list(fs.mapped_files(pid))
    except PermissionError:
        yield Check(
            f"process {pid}", Health.MISSING, "its environment and memory map may not be read", "run as its user or as root"
        )
        return
    except (FileNotFoundError, ProcessLookupError):
        yield Check(f"process {pid}", Health.MISSING, "there is no such process")
        return
    loaded = [path for path in mapped if LIBRARY in Path(path).name]
    yield from _hooks(environ, loaded)
    yield from _nccl(fs, pid, mapped)
    yield recorder_settings(environ)
    yield dump_place(environ, lambda path: visible_path(fs, pid, path))
    yield live_dumps(environ, _torch(fs, pid), any(_NCCL.search(path) or path.endswith(_TORCH_CUDA) for path in mapped))
    yield from _log(fs, pid, environ, bool(loaded))


def _torch(fs: ProcFs, pid: int) -> str | None:
    """Version of the torch that the process has mapped."""
    try:
        packages = rank_versions(fs, pid)["packages"]
    except OSError:
        return None
    return str(packages["torch"]) if "torch" in packages else None


def _hooks(environ: Mapping[str, str], loaded: list[str]) -> Iterator[Check]:
    """Whether each hook was asked for, and whether the library is really in the process."""
    for name in ("LD_PRELOAD", "NCCL_PROFILER_PLUGIN"):
        if LIBRARY not in environ.get(name, ""):
            yield Check(name, Health.WARN, "does not name the collector", _START)
        elif not loaded and name == "LD_PRELOAD":
            words = "names the collector, but it is not in the memory map"
            advice = "does the path exist in its container; is the program setuid or linked statically?"
            yield Check(name, Health.MISSING, words, advice)
        else:
            when = "" if loaded else "; NCCL loads it with its first communicator"
            yield Check(name, Health.OK, f"names the collector{when}")
    if loaded:
        yield Check("collector", Health.OK, f"loaded: {loaded[0]}")
    else:
        yield Check("collector", Health.MISSING, "not loaded", _START)


def _nccl(fs: ProcFs, pid: int, mapped: list[str]) -> Iterator[Check]:
    library = next((path for path in mapped if _NCCL.search(path)), None)
    torch = next((path for path in mapped if path.endswith(_TORCH_CUDA)), None)
    try:
        if torch is not None:
            yield linking(Path(torch), needed(visible_path(fs, pid, torch)))
        if library is not None:
            yield plugin_support(nccl_version(visible_path(fs, pid, library)), Path(library))
        elif torch is None:
            yield Check("NCCL", Health.WARN, "no libnccl and no torch with CUDA in the memory map", "not loaded yet, or static")
    except (OSError, ValueError) as error:
        yield Check("NCCL", Health.WARN, f"its library cannot be read: {error}")


def _log(fs: ProcFs, pid: int, environ: Mapping[str, str], loaded: bool) -> Iterator[Check]:
    uid = _owner(fs, pid)
    name = folder_of(environ, os.geteuid() if uid is None else uid)
    try:
        own = own_log(fs, pid, find_job(fs, pid, environ, uid))
    except OSError:
        own = None
    if own is None:
        health = Health.WARN if loaded else Health.MISSING
        yield Check("log", health, f"none of this process in {name}", "it is made with the first NCCL or verbs call")
        return
    for status in statuses([own.path], fs.root):
        yield from _of_log(status)


def _owner(fs: ProcFs, pid: int) -> int | None:
    try:
        return fs.path(pid, "environ").stat().st_uid
    except OSError:
        return None


def _of_log(status: LogStatus) -> Iterator[Check]:
    """What the log itself says of its hooks."""
    if status.pid is None or status.state == "stopped":
        yield Check("log", Health.MISSING, f"{status.path}: {status.problem or 'recording stopped'}")
        return
    lost = f"{status.lost} records overwritten, {status.torn} torn"
    yield Check("log", Health.OK, f"{status.path}: {status.state}, {len(status.communicators)} communicators, {lost}")
    for hook, advice in (
        ("nccl", "static NCCL, RTLD_DEEPBIND or dlsym on a handle bypass preloading; the profiler hook still works"),
        ("profiler", "needs NCCL 2.23 and NCCL_PROFILER_PLUGIN; without it there is no chunk state"),
        ("verbs", "no RDMA in use, or libibverbs was reached another way"),
    ):
        seen = hook in status.called or (hook == "verbs" and hook in status.hooked)
        words = "saw calls" if seen else "hooked, nothing came through" if hook in status.hooked else "not hooked"
        # The name is public: JSON of `forensics doctor`.
        yield Check(f"hook {hook}", Health.OK if seen else Health.WARN, words, "" if seen else advice)
