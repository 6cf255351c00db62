"""Python stacks of a rank and of its child processes with `py-spy dump --json --nonblocking`.

Always `--nonblocking`: a ptrace stop of a process in uninterruptible sleep hangs the tracer for good, and a stop changes
the job. It reads memory only (process_vm_readv), whoever traces the process and whatever state it is in; a system call
filter holds it to that. Where there can be no filter, a process that is traced or in state D is left out, and a guard sets
others going again that a killed py-spy left stopped. Never `--locals`: values of variables are nobody's business. One
process is one py-spy with its own deadline.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import orjson

from forensics.bundle.layout import Status, rank_path
from forensics.collect.collectors.command import start_program
from forensics.collect.collectors.proc_tasks import gone
from forensics.collect.confinement import why_unconfined
from forensics.collect.guard import start_guard, why_not_traceable
from forensics.collect.permissions import why_denied
from forensics.collect.processes import ProcFs, all_stats
from forensics.collect.record import Run, now_ns
from forensics.collect.scan import is_python
from forensics.collect.target import Context, Target, Tree, process_tree

ID = "stack.pyspy"
_DENIED = re.compile(rb"permission denied|operation not permitted", re.IGNORECASE)
_NOT_PYTHON = re.compile(rb"python version|python interpreter|not a python|libpython", re.IGNORECASE)
_POLL_S = 0.005
_LAST_ATTEMPT = 1


@dataclass(frozen=True, slots=True)
class _Dump:
    """One py-spy at work."""

    pid: int
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    errors: IO[bytes]
    begin_ns: int
    deadline: float
    attempt: int
    guard: int | None


def find_py_spy() -> str | None:
    """The py-spy that was installed with this Python, else the one on PATH."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if sys.executable and beside.is_file() else shutil.which("py-spy")


def collect_stacks(context: Context, target: Target, sample: int) -> Iterator[Run]:
    """One sample of every Python process of a rank, the rank's own first."""
    stats = all_stats(context.procfs)
    tree = process_tree(target, stats, context.settings.children)
    if context.py_spy is None:
        reason = "py-spy is neither beside this Python nor on PATH: pip install 'forensics[collect]'"
        yield Run(ID, target.rank, Status.NOT_FOUND, reason, pid=target.pid, sample=sample)
        return
    python = [pid for pid in tree.pids if pid in stats and stats[pid].state not in "ZX"]
    python = [pid for pid in python if pid == tree.root or _looks_python(context.procfs, pid)]
    if tree.root not in python:
        yield Run(ID, target.rank, Status.NOT_FOUND, gone(target), pid=target.pid, sample=sample)
    yield from _dump_all(context, target, sample, tree, python)
    if tree.cut:
        reason = f"{tree.cut} child processes beyond the first {len(tree.children)} were left out"
        yield Run(ID, target.rank, Status.PARTIAL, reason, sample=sample)


def _looks_python(procfs: ProcFs, pid: int) -> bool:
    try:
        return is_python(procfs.link(pid, "exe"), ())
    except OSError:
        return True  # py-spy says exactly why it cannot be read


def _dump_all(context: Context, target: Target, sample: int, tree: Tree, pids: Sequence[int]) -> Iterator[Run]:
    """Run py-spy on all processes, a few at once."""
    free = why_unconfined(str(context.py_spy))
    left_out = {pid: reason for pid in pids if (reason := _why_left_out(context.procfs, pid, free))}
    for pid, reason in left_out.items():
        yield Run(ID, target.rank, Status.SKIPPED_BY_POLICY, reason, pid=pid, sample=sample, counts=pid == tree.root)
    # What left its target stopped is not tried again before the guard has set that going.
    waiting = [(pid, 0 if free is None else _LAST_ATTEMPT) for pid in pids if pid not in left_out]
    running: list[_Dump] = []
    while waiting or running:
        while waiting and len(running) < context.settings.at_once:
            pid, attempt = waiting.pop(0)
            running.append(_start(context, pid, attempt, free is None))
        time.sleep(_POLL_S)
        for dump in [one for one in running if _is_over(one)]:
            running.remove(dump)
            run = _finish(context, target, sample, dump, tree)
            # A nonblocking read of a running interpreter sometimes meets half-changed frames; the next one mostly does not.
            if run.status is Status.PARTIAL and dump.attempt < _LAST_ATTEMPT:
                waiting.insert(0, (dump.pid, dump.attempt + 1))
            else:
                yield run


def _why_left_out(procfs: ProcFs, pid: int, free: str | None) -> str | None:
    """Why a process is not sampled by a py-spy that is free to attach, for the reason given, to what it looks at."""
    try:
        reason = why_not_traceable(procfs, pid) if free is not None else None
    except (OSError, ValueError, IndexError):  # py-spy says that it is gone
        return None
    return f"{reason}, and py-spy cannot be kept from ptrace: {free}" if reason else None


def _start(context: Context, pid: int, attempt: int, forbid: bool) -> _Dump:
    output = tempfile.TemporaryFile(dir=context.staging.root)  # noqa: SIM115 - lives as long as the process
    errors = tempfile.TemporaryFile(dir=context.staging.root)  # noqa: SIM115
    guard = None if forbid else _guard(context.procfs, pid)
    begin = now_ns()
    held = () if guard is None else (guard,)
    process = start_program(_argv(context, pid), output, errors, forbid=forbid, held=held)
    return _Dump(pid, process, output, errors, begin, time.monotonic() + context.settings.stack_s, attempt, guard)


def _guard(procfs: ProcFs, pid: int) -> int | None:
    try:
        return start_guard(procfs, pid)
    except (OSError, ValueError, IndexError):  # gone: there is nothing to guard
        return None


def _argv(context: Context, pid: int) -> list[str]:
    return [str(context.py_spy), "dump", "--json", "--nonblocking", "--pid", str(pid)]


def _is_over(dump: _Dump) -> bool:
    return dump.process.poll() is not None or time.monotonic() >= dump.deadline


def _finish(context: Context, target: Target, sample: int, dump: _Dump, tree: Tree) -> Run:
    """The run of one py-spy that ended or is out of time; one that ignores SIGKILL is left to the end of this child."""
    is_child = dump.pid != tree.root
    name = f"stacks/child-{dump.pid}.{sample}.json" if is_child else f"stacks/{sample}.json"
    status, reason, content = _outcome(context, dump)
    written = context.staging.write(rank_path(target.rank, name), content) if content else None
    dump.output.close()
    dump.errors.close()
    if dump.guard is not None:
        os.close(dump.guard)
    run = Run(
        ID,
        target.rank,
        status,
        reason,
        pid=dump.pid,
        sample=sample,
        argv=tuple(_argv(context, dump.pid)),
        begin_ns=dump.begin_ns,
        end_ns=now_ns(),
        counts=not is_child or status not in (Status.NOT_FOUND, Status.UNSUPPORTED),
    )
    return run.stored(written) if written else run


def _outcome(context: Context, dump: _Dump) -> tuple[Status, str | None, bytes]:
    """Status, reason and JSON text of one py-spy; its exit code only tells success from failure."""
    code = dump.process.poll()
    if code is None:
        dump.process.kill()
        state = _state(context.procfs, dump.pid)
        return Status.TIMEOUT, f"py-spy gave nothing for process {dump.pid} ({state}) in {context.settings.stack_s:g} s", b""
    dump.output.seek(0)
    content = dump.output.read(context.settings.text_bytes)
    if code == 0 and _is_dump(content):
        return Status.OK, None, content
    dump.errors.seek(0)
    said = dump.errors.read(1 << 16)
    if not context.procfs.path(dump.pid, "stat").exists():
        return Status.NOT_FOUND, f"process {dump.pid} ended during the collection", b""
    if _DENIED.search(said):
        reason = why_denied(context.procfs, dump.pid, "read the memory")
        return Status.PERMISSION, reason, b""
    words = said.decode("utf-8", "replace").strip().partition("\n")[0][:200] or f"exit code {code}"
    if _NOT_PYTHON.search(said):
        return Status.UNSUPPORTED, f"process {dump.pid} cannot be read as Python: {words}", b""
    return Status.PARTIAL, f"py-spy failed on process {dump.pid}: {words}", b""


def _is_dump(content: bytes) -> bool:
    try:
        return isinstance(orjson.loads(content), list)
    except orjson.JSONDecodeError:
        return False


def _state(procfs: ProcFs, pid: int) -> str:
    try:
        return f"state {procfs.stat(pid).state}"
    except (OSError, ValueError, IndexError):
        return "gone"
