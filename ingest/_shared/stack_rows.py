"""Rows of `stacks` from threads of a text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.frames import FrameTable, is_entry
from forensics.ingest._shared.process_ranks import ProcessRank, process_rank_batches
from forensics.ingest._shared.process_titles import world_ranks
from forensics.ingest._shared.processes import is_child_by_stack
from forensics.ingest._shared.stack_text import ALONE, FIRST_THREAD, Thread
from forensics.ingest.interface import Batch

_OF_GDB = FIRST_THREAD.partition(" ")[0]
_NATIVE_ENTRIES = frozenset({"main", "_start", "__libc_start_main", "Py_RunMain", "Py_BytesMain"})


def stack_batches(artefact: Artefact, found: Sequence[Thread]) -> Iterator[Batch]:
    """Rows of `stacks` and of what they refer to."""
    threads = _of_processes(list(found))
    table = FrameTable()
    columns: dict[str, list[Any]] = defaultdict(list)
    mains = _mains(artefact, threads)
    ranks = _ranks(artefact, threads)
    for index, thread in enumerate(threads):
        columns["locator"].append(f"line={thread.line}")
        columns["pid"].append(artefact.pid if thread.pid is None else thread.pid)
        columns["thread"].append(thread.number)
        columns["thread_name"].append(thread.name)
        columns["is_main"].append(index in mains)
        columns["active"].append(thread.status.startswith("active") if thread.status else None)
        columns["owns_gil"].append("gil" in thread.status if thread.status else None)
        columns["call_path"].append(table.call_path(thread.frames))
    if any(rank is not None for rank in ranks):
        columns["rank"] = ranks
    if any(thread.host is not None for thread in threads):
        columns["host"] = [thread.host or artefact.host for thread in threads]
    for name in ("clock_s", "timer_s", "peer"):
        values = [getattr(thread, name) for thread in threads]
        if any(value is not None for value in values):
            columns[name] = values
    children = _children(artefact, threads, columns)
    columns["is_child"] = [children[pid] for pid in columns["pid"]]
    columns["sample"] = [(artefact.sample or 0) + thread.dump for thread in threads]
    columns["time_ns"] = [artefact.captured_ns if thread.time_ns is None else thread.time_ns for thread in threads]
    yield Batch("stacks", columns)
    yield from table.batches()
    places = {(thread.host, thread.pid): thread.local_rank for thread in threads if thread.local_rank is not None}
    yield from process_rank_batches(
        ProcessRank("command", host or artefact.host, pid, local_rank=number) for (host, pid), number in places.items()
    )


def _ranks(artefact: Artefact, threads: Sequence[Thread]) -> list[int | None]:
    """Ranks by headings, else by what processes are called; what a name of a file states goes before its only process."""
    places = {thread.pid: thread.place for thread in threads if thread.pid is not None and thread.place is not None}
    stated = world_ranks(places) if not artefact.has_stated_rank or len(places) > 1 else {}
    return [stated.get(thread.pid) if thread.rank is None and thread.pid is not None else thread.rank for thread in threads]


def _of_processes(threads: list[Thread]) -> list[Thread]:
    """Threads of gdb with their process: it lists the first thread, whose number is the process's, last."""
    found: list[Thread] = []
    first = 0
    for place, thread in enumerate(threads):
        if not thread.handle.startswith(_OF_GDB) or thread.handle == ALONE:
            # What other tools printed above is of other processes.
            found, first = found + threads[first : place + 1], place + 1
        elif thread.handle == FIRST_THREAD:
            found += [replace(each, pid=thread.number) for each in threads[first : place + 1]]
            first = place + 1
    return found + threads[first:]


def _mains(artefact: Artefact, threads: list[Thread]) -> set[int]:
    """Indices of the main threads: by number or name, else in each process of each dump the one that runs the program."""
    stated: set[int] = set()
    runs: dict[tuple[int | None, str | None, int | None, int], list[int]] = defaultdict(list)
    for index, thread in enumerate(threads):
        pid = artefact.pid if thread.pid is None else thread.pid
        is_numbered = thread.number is not None and pid is not None
        if thread.number == pid if is_numbered else thread.name == "MainThread":
            stated.add(index)
        runs[thread.rank, thread.host, pid, thread.dump].append(index)
    for members in runs.values():
        if not stated.intersection(members):
            stated |= {index for index in members if is_entry(threads[index].frames) or _begins_in_main(threads[index])}
    return stated


def _begins_in_main(thread: Thread) -> bool:
    """Whether the one thread that gdb was at is that of the program: it is, unless somebody chose another one."""
    return thread.handle == ALONE and bool(thread.frames) and thread.frames[-1][0] in _NATIVE_ENTRIES


def _children(
    artefact: Artefact, threads: Sequence[Thread], columns: Mapping[str, Sequence[Any]]
) -> dict[int | None, bool | None]:
    """Which processes are children: by the artefact's name, else by the stack of the main thread of each."""
    if artefact.is_child is not None:
        return dict.fromkeys(columns["pid"], artefact.is_child)
    mains: dict[int | None, Thread] = {}
    for thread, pid, is_main in zip(threads, columns["pid"], columns["is_main"], strict=True):
        if is_main:
            mains.setdefault(pid, thread)
    return {pid: is_child_by_stack(mains[pid].frames) if pid in mains else False for pid in columns["pid"]}
