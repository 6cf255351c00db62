"""Stack dumps as text: py-spy's own form, and faulthandler's (docs/formats/python-stacks-text.md)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._content import Lines
from forensics.ingest._frames import MAX_DEPTH, Frame, FrameTable
from forensics.ingest._processes import is_child_by_stack
from forensics.ingest.interface import Batch, Ingester, Item, Problem

MAX_THREADS = 100_000

_PROCESS = re.compile(r"Process (\d{1,9}): ")
_PY_SPY = re.compile(r'Thread (0x[0-9A-Fa-f]+|\d{1,9}) \(([a-z+]+)\)(?:: "(.*)")?')
_PY_SPY_FRAME = re.compile(r"    (\S.*)")
_PLACE = re.compile(r"(.+?)(?::(\d{1,9}))?")
_FAULTHANDLER = re.compile(r"(?:Thread|Current thread) 0x[0-9a-f]+(?: \[(.*)\])? \(most recent call first\):")
_FAULTHANDLER_FRAME = re.compile(r'  File "(.+)", line (\d{1,9}|\?\?\?) in (.+)')


@dataclass(slots=True)
class _Thread:
    """One thread while its lines are read."""

    line: int
    number: int | None
    name: str | None
    status: str | None
    pid: int | None
    frames: list[Frame] = field(default_factory=list)


def sniff(head: bytes, path: str) -> int:
    """Text that is mostly thread headers and frames; a log in which a program dumped its stacks is still a log."""
    lines = [line for line in head.decode("utf-8", "replace").splitlines() if line.strip()]
    headers = sum(_header(line, 0, None) is not None for line in lines)
    frames = sum(_frame(line) is not None for line in lines)
    return 70 if headers and frames and 2 * (headers + frames) > len(lines) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """One row a thread of every dump in the file, each dump a sample."""
    threads = []
    lines = Lines(artefact)
    for thread in _threads(lines):
        threads.append(thread)
        if len(threads) == MAX_THREADS:
            yield Problem(f"more than {MAX_THREADS} threads; the rest was left out", f"line={thread.line}")
            break
    if lines.problem is not None:
        yield lines.problem
    if not threads:
        yield Problem("no thread could be read", "line=1", fatal=True)
        return
    table = FrameTable()
    columns: dict[str, list[Any]] = defaultdict(list)
    for thread in threads:
        pid = artefact.pid if thread.pid is None else thread.pid
        is_main = _is_main(thread, pid)
        columns["locator"].append(f"line={thread.line}")
        columns["pid"].append(pid)
        columns["thread"].append(thread.number)
        columns["thread_name"].append(thread.name)
        columns["is_main"].append(is_main)
        columns["active"].append(thread.status.startswith("active") if thread.status else None)
        columns["owns_gil"].append("gil" in thread.status if thread.status else None)
        columns["call_path"].append(table.call_path(thread.frames))
    children = {pid: _is_child(artefact, threads, columns, pid) for pid in set(columns["pid"])}
    columns["is_child"] = [children[pid] for pid in columns["pid"]]
    columns["sample"] = [artefact.sample or 0] * len(threads)
    columns["time_ns"] = [artefact.captured_ns] * len(threads)
    yield Batch("stacks", columns)
    yield from table.batches()


def _threads(lines: Lines) -> Iterator[_Thread]:
    """Threads in file order; a line that is neither a header nor a frame is passed over."""
    pid: int | None = None
    thread: _Thread | None = None
    for number, line in lines:
        if match := _PROCESS.match(line):
            pid = int(match[1])
        started = _header(line, number, pid)
        if started is not None:
            if thread is not None:
                yield thread
            thread = started
        elif thread is not None and len(thread.frames) < MAX_DEPTH and (frame := _frame(line)) is not None:
            thread.frames.append(frame)
    if thread is not None:
        yield thread


def _header(line: str, number: int, pid: int | None) -> _Thread | None:
    """A thread header; py-spy gives the OS thread id in decimal, while a hexadecimal number is a pthread handle."""
    if match := _PY_SPY.fullmatch(line):
        os_thread = None if match[1].startswith("0x") else int(match[1])
        return _Thread(number, os_thread, match[3], match[2], pid)
    if match := _FAULTHANDLER.fullmatch(line):
        return _Thread(number, None, match[1], None, pid)
    return None


def _frame(line: str) -> Frame | None:
    name, opened, rest = line.rpartition(" (")
    if opened and rest.endswith(")") and (match := _PY_SPY_FRAME.fullmatch(name)) and (place := _PLACE.fullmatch(rest[:-1])):
        return match[1], place[1], int(place[2]) if place[2] and int(place[2]) else None
    if match := _FAULTHANDLER_FRAME.fullmatch(line):
        return match[3], match[1], int(match[2]) if match[2].isdecimal() else None
    return None


def _is_main(thread: _Thread, pid: int | None) -> bool:
    """By number, by name, or as faulthandler leaves it: the thread that runs the program's `<module>`."""
    if thread.number is not None and pid is not None:
        return thread.number == pid
    if thread.name is not None:
        return thread.name == "MainThread"
    return bool(thread.frames) and thread.frames[-1][0] == "<module>"


def _is_child(artefact: Artefact, threads: list[_Thread], columns: dict[str, list[Any]], pid: int | None) -> bool | None:
    """By the artefact's name, else by the stack of the process's main thread."""
    if artefact.is_child is not None:
        return artefact.is_child
    rows = zip(threads, columns["pid"], columns["is_main"], strict=True)
    main = next((thread for thread, own, is_main in rows if own == pid and is_main), None)
    return is_child_by_stack(main.frames) if main is not None else False


INGESTER = Ingester("python_stacks_text", "python_stacks", sniff, rows)
