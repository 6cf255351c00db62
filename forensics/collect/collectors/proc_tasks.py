"""Look at every thread of a rank and of its child processes through /proc: state, kernel wait, CPU time, tracer.

What cannot block is read first and written at once; `io`, `syscall` and `stack`, which can, are added afterwards.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from forensics.bundle.layout import Status, rank_path
from forensics.collect.collectors.waited_files import waited_files
from forensics.collect.processes import ProcFs, Stat, all_stats
from forensics.collect.record import Run, now_ns
from forensics.collect.target import Context, Target, process_tree

ID = "proc.tasks"


def collect_tasks(context: Context, target: Target, sample: int) -> Iterator[Run]:
    """One look at the threads of one rank."""
    stats = all_stats(context.procfs)
    tree = process_tree(target, stats, context.settings.children)
    if not any(pid in stats for pid in tree.pids):
        yield Run(ID, target.rank, Status.NOT_FOUND, gone(target), pid=target.pid, sample=sample)
        return
    limit = context.settings.threads
    processes = [_process(context.procfs, stats[pid], pid != tree.root, limit) for pid in tree.pids if pid in stats]
    document = {"schema": "forensics.proc/1", "rank": target.rank, "time_ns": now_ns(), "processes": processes}
    path = rank_path(target.rank, f"proc/{sample}.json")
    early = context.staging.write_json(path, document)
    stuck = "reading the kernel stacks blocked; the rest is there"
    run = Run(ID, target.rank, Status.PARTIAL, stuck, pid=target.pid, sample=sample, provisional=True).stored(early)
    yield run
    for process in processes:
        _add_kernel_view(context.procfs, process)
    written = context.staging.write_json(path, document)
    reason = _reason(processes, tree.cut)
    if tree.root is None and target.state == "alive":
        reason = "; ".join(filter(None, (gone(target), reason)))
    yield replace(run, status=Status.PARTIAL if reason else Status.OK, reason=reason, provisional=False).stored(written)


def gone(target: Target) -> str:
    """Why there is nothing to look at in the process of a rank."""
    if target.pid is None:
        return "the rank has no process on this host"
    if target.state == "zombie":
        return f"process {target.pid} is dead and waits to be reaped"
    return f"process {target.pid} ended during the collection"


def _process(procfs: ProcFs, stat: Stat, is_child: bool, limit: int) -> dict[str, Any]:
    errors: list[str] = []
    threads: list[dict[str, Any]] = []
    try:
        tids = procfs.threads(stat.pid)
    except OSError as error:
        tids = []
        errors.append(f"task: {_words(error)}")
    if len(tids) > limit:
        errors.append(f"task: only {limit} of {len(tids)} threads were read")
    for tid in tids[:limit]:
        try:
            threads.append(_thread(procfs, stat.pid, tid, errors))
        except (OSError, ValueError, IndexError):  # ended in the meantime
            continue
    process = {"pid": stat.pid, "ppid": stat.ppid, "is_child": is_child, "written_bytes": None}
    return {**process, "threads": threads, "errors": errors}


def _thread(procfs: ProcFs, pid: int, tid: int, errors: list[str]) -> dict[str, Any]:
    stat = procfs.stat(pid, tid)
    status = procfs.status(pid, tid)
    return {
        "tid": tid,
        "name": stat.comm,
        "state": stat.state,
        "wchan": _optional(procfs, pid, tid, "wchan", errors),
        "syscall": None,
        "stack": None,
        "waits_on": None,
        "utime_ticks": stat.utime,
        "stime_ticks": stat.stime,
        "voluntary_switches": _number(status.get("voluntary_ctxt_switches")),
        "involuntary_switches": _number(status.get("nonvoluntary_ctxt_switches")),
        "tracer_pid": _number(status.get("TracerPid")),
        "signals_caught": status.get("SigCgt"),
    }


def _written(procfs: ProcFs, pid: int) -> int | None:
    """Bytes that the calls of a process have written since it began, to whatever; None where it may not be known."""
    try:
        lines = procfs.text(pid, "io").splitlines()
    except OSError:
        return None
    return next((_number(line.removeprefix("wchar: ")) for line in lines if line.startswith("wchar: ")), None)


def _add_kernel_view(procfs: ProcFs, process: dict[str, Any]) -> None:
    process["written_bytes"] = _written(procfs, process["pid"])
    for thread in process["threads"]:
        for name in ("syscall", "stack"):
            thread[name] = _optional(procfs, process["pid"], thread["tid"], name, process["errors"])
        if thread["tid"] == process["pid"]:
            thread["waits_on"] = _waits_on(procfs, process["pid"], thread["syscall"])


def _waits_on(procfs: ProcFs, pid: int, syscall: str | None) -> list[str] | None:
    """The files that the thread waits on; they may be closed, or belong to somebody else, before they are read."""
    try:
        return waited_files(procfs, pid, platform.machine(), syscall)
    except (OSError, ValueError, IndexError, OverflowError):
        return None


def _optional(procfs: ProcFs, pid: int, tid: int, name: str, errors: list[str]) -> str | None:
    """A file that not every kernel shows to everybody; a reason is noted once for each process."""
    try:
        text = procfs.text(pid, f"task/{tid}/{name}")
    except FileNotFoundError:
        return None
    except OSError as error:
        message = f"{name}: {_words(error)}"
        if message not in errors:
            errors.append(message)
        return None
    return text if text and text != "0" else None


def _reason(processes: list[dict[str, Any]], cut: int) -> str | None:
    reasons: list[str] = []
    denied = sorted({error for process in processes for error in process["errors"]})
    if denied:
        hint = " (kernel stacks are shown to root only)" if any(error.startswith("stack") for error in denied) else ""
        reasons.append("; ".join(denied) + hint)
    if cut:
        reasons.append(f"{cut} child processes beyond the first {len(processes) - 1} were left out")
    return "; ".join(reasons) or None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
