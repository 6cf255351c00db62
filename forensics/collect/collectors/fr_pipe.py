"""Ask a living rank for a Flight Recorder dump through its named pipe, and wait for the file.

ProcessGroupNCCL makes `<stem><rank>.pipe` when the pipe variable is set; its monitor thread polls it and dumps on any byte
(torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp, DumpPipe). What is written is one byte, and only to a pipe that this very
rank reads; a byte that it does not read is taken back. A pipe without reader is a finding: the monitor thread is
gone, as it is in a rank that raised and hangs in teardown.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from forensics.bundle.layout import Status, member_name
from forensics.collect.collectors.fr_files import DumpPlace, copy_dump, dump_places
from forensics.collect.collectors.proc_tasks import gone
from forensics.collect.dump_request import NotAskedError, request
from forensics.collect.record import Run, failure
from forensics.collect.target import Context, Target, visible_path

ID = "fr.pipe"
VARIABLES = ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_HCCL_DEBUG_INFO_PIPE_FILE")
_POLL_S = 0.2

_Stamp = tuple[int, int, int]


def collect_pipe(context: Context, target: Target, sample: int) -> Iterator[Run]:
    """Trigger one dump and take what it wrote."""
    stem = next((target.environ[name] for name in VARIABLES if target.environ.get(name)), None)
    if target.pid is None or target.state == "zombie":
        yield _without(target, Status.NOT_FOUND, gone(target))
    elif stem is None:
        yield _without(target, Status.NOT_CONFIGURED, f"{VARIABLES[0]} is not set")
    elif not context.settings.use_pipe:
        yield _without(target, Status.SKIPPED_BY_POLICY, "writing to the job's pipe was switched off (--no-fr-pipe)")
    else:
        yield from _trigger(context, target, target.pid, f"{stem}{target.rank}.pipe")


def _trigger(context: Context, target: Target, pid: int, name: str) -> Iterator[Run]:
    places = dump_places(context, target)
    before = {place.name: _stamp(place.path) for place in places}
    asked_ns = time.time_ns()
    try:
        with request(context.procfs, pid, visible_path(context.procfs, pid, name)) as asked:
            fresh = _wait_for_dump(places, before, context.settings.dump_wait_s)
            was_read = fresh or not asked.take_back()
    except NotAskedError as error:
        yield _without(target, error.status, f"{name} {error}")
        return
    except OSError as error:
        yield _without(target, *_why_not(error, name))
        return
    if not fresh:
        said = "was read" if was_read else "was not read, and the request was taken back"
        yield _without(target, Status.TIMEOUT, f"{name} {said}, but no dump appeared in {context.settings.dump_wait_s:g} s")
    for place in fresh:
        # The watchdog's earlier dump has the same name and may hold what this one no longer has. To write one takes seconds
        # (call paths): its file is dated too late, and no call from before the request is missing in it.
        found = copy_dump(context, target, place, ID, f"fr/pipe.{member_name(Path(place.name).name)}")
        yield replace(found, captured_ns=asked_ns)


def _why_not(error: OSError, name: str) -> tuple[Status, str]:
    if error.errno == errno.ENXIO:
        return Status.NOT_FOUND, f"nobody reads {name}: the monitor thread of this rank is gone"
    if error.errno == errno.ENOENT:
        return Status.NOT_FOUND, f"{name} does not exist: no NCCL process group was made, or the recorder is off"
    return failure(error, name)


def _wait_for_dump(places: list[DumpPlace], before: dict[str, _Stamp | None], wait_s: float) -> list[DumpPlace]:
    """Dumps that are new or newer and have stopped growing."""
    deadline = time.monotonic() + wait_s
    last = before
    while time.monotonic() < deadline:
        time.sleep(_POLL_S)
        now = {place.name: _stamp(place.path) for place in places}
        changed = [place for place in places if now[place.name] not in (None, before[place.name])]
        if changed and all(now[place.name] == last[place.name] for place in changed):
            return changed
        last = now
    return []


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _without(target: Target, status: Status, reason: str) -> Run:
    return Run(ID, target.rank, status, reason, pid=target.pid)
