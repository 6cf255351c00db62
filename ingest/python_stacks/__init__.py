"""py-spy dumps as JSON: one sample of every Python thread of a process (docs/formats/python-stacks.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import from_first_character, read_json
from forensics.ingest._shared.frames import PEER_ARGUMENTS, Frame, FrameTable, innermost_first, is_entry, names_peer, read_frame
from forensics.ingest._shared.processes import is_child_by_stack
from forensics.ingest._shared.values import boolean, integer, objects, rank_number, text
from forensics.ingest.interface import Batch, Ingester, Item, Problem

_MARKS = (b'"thread_id"', b'"frames"', b'"owns_gil"', b'"os_thread_id"', b'"thread_name"')

_LONGEST_RANK = 7


def sniff(head: bytes, path: str) -> int:
    """A JSON list of threads with py-spy's keys."""
    if from_first_character(head)[:1] != b"[":
        return 0
    return 90 if sum(mark in head for mark in _MARKS) >= 3 else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """Stacks of all threads, those of subprocesses too, and their call paths."""
    document = read_json(artefact)
    if isinstance(document, Problem):
        yield document
        return
    threads = objects(document)
    if not isinstance(document, list) or len(threads) < len(document):
        yield Problem("not a list of threads, or a thread is not an object; that was left out")
    processes: dict[int | None, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
    for number, thread in enumerate(threads):
        processes[integer(thread.get("pid"))].append((number, thread))
    children = _subprocesses(threads)
    table = FrameTable()
    columns: dict[str, list[Any]] = defaultdict(list)
    for pid, members in processes.items():
        stacks = [_stack(thread) for _, thread in members]
        main = _main_thread(pid, [thread for _, thread in members], stacks)
        is_child = _is_child(artefact, pid, children, stacks[main] if main is not None else None)
        for index, (number, thread) in enumerate(members):
            _add(columns, thread, number, table.call_path(stacks[index]))
            columns["pid"].append(pid)
            columns["is_child"].append(is_child)
            columns["is_main"].append(index == main)
    if threads:
        columns["sample"] = [artefact.sample or 0] * len(threads)
        columns["time_ns"] = [artefact.captured_ns] * len(threads)
        yield Batch("stacks", columns)
        yield from table.batches()


def _add(columns: dict[str, list[Any]], thread: dict[str, Any], number: int, call_path: int | None) -> None:
    """What the thread says of itself; its locator is the OS thread, else its place in the list."""
    os_thread = integer(thread.get("os_thread_id"))
    columns["locator"].append(f"thread={os_thread}" if os_thread is not None else f"entry={number}")
    columns["thread"].append(os_thread)
    columns["thread_name"].append(text(thread.get("thread_name")))
    columns["active"].append(boolean(thread.get("active")))
    columns["owns_gil"].append(boolean(thread.get("owns_gil")))
    columns["call_path"].append(call_path)
    columns["peer"].append(_peer(thread))


def _peer(thread: dict[str, Any]) -> int | None:
    """The rank that an argument of a send or receive names, where values of variables were asked for."""
    for entry in objects(thread.get("frames")):
        frame = read_frame(entry)
        if frame is not None and names_peer(frame):
            said = [each for each in objects(entry.get("locals")) if each.get("arg") and each.get("name") in PEER_ARGUMENTS]
            ranks = [shown for each in said if (shown := text(each.get("repr")) or "").isdecimal()]
            return rank_number(int(ranks[0])) if ranks and len(ranks[0]) <= _LONGEST_RANK else None
    return None


def _stack(thread: dict[str, Any]) -> Sequence[Frame]:
    """The frames of a thread that have a name, innermost first."""
    frames = (read_frame(frame) for frame in objects(thread.get("frames")))
    return innermost_first([frame for frame in frames if frame is not None])


def _main_thread(pid: int | None, threads: Sequence[dict[str, Any]], stacks: Sequence[Sequence[Frame]]) -> int | None:
    """Index of the main thread: its OS thread id is the pid; else, as in a container's own numbers, it is called MainThread.

    Where it has another title, it is the only thread that runs the program.
    """
    for index, thread in enumerate(threads):
        if pid is not None and integer(thread.get("os_thread_id")) == pid:
            return index
    named = [index for index, thread in enumerate(threads) if thread.get("thread_name") == "MainThread"]
    found = named or [index for index, stack in enumerate(stacks) if is_entry(stack)]
    return found[0] if len(found) == 1 else None


def _subprocesses(threads: Sequence[dict[str, Any]]) -> set[int]:
    """Processes whose parent is in the same dump, as `py-spy dump --subprocesses` writes them."""
    pids = {integer(thread.get("pid")) for thread in threads}
    found: set[int] = set()
    for thread in threads:
        info = thread.get("process_info")
        parent = info.get("parent") if isinstance(info, dict) else None
        pid = integer(thread.get("pid"))
        if pid is not None and isinstance(parent, dict) and integer(parent.get("pid")) in pids - {pid}:
            found.add(pid)
    return found


def _is_child(artefact: Artefact, pid: int | None, children: set[int], main: Sequence[Frame | None] | None) -> bool | None:
    """Whether the process is a child of the rank: by the dump, by the artefact's name, by the stack; None when it may be."""
    if pid in children:
        return True
    if artefact.is_child is not None:
        return artefact.is_child
    return is_child_by_stack(main) if main is not None else False


INGESTER = Ingester("python_stacks", "python_stacks", sniff, rows, most=90, by_moment=True)
