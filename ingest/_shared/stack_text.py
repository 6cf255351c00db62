"""Threads in stack dumps as text: py-spy's own form, faulthandler's and gdb's, told apart line by line."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.dump_times import clock_in, time_in
from forensics.ingest._shared.frames import MAX_DEPTH, Frame, FrameTable, innermost_first, is_entry, names_peer
from forensics.ingest._shared.process_titles import Place, dumped, place_of, world_ranks
from forensics.ingest._shared.processes import is_child_by_stack
from forensics.ingest._shared.stack_frames import frame
from forensics.ingest._shared.stack_headings import ENVIRONMENT, HEADING, LONGEST_HEADING, OF_PROCESS, OTHERS
from forensics.ingest.interface import Batch

PROCESS = re.compile(r"\s*Process (\d{1,9}): ")
# A rank of so many, as the command of the process gives it.
_GIVEN = re.compile(r" --?rank[ =](\d{1,7})(?= (?:.* )?--?world[-_]size[ =]\d)")
_PY_SPY = re.compile(r'\s*Thread (0x[0-9A-Fa-f]+|\d{1,9}) \(([a-z+]+)\)(?:: "(.*)")?\s*')
_FAULTHANDLER = re.compile(r"\s*(?:Thread|Current thread) (0x[0-9a-f]+)(?: \[(.*)\])? \(most recent call (first|last)\):\s*")
# pystack, of Python alone or with the frames of libraries.
_PYSTACK = re.compile(r"\s*Traceback for thread (\d{1,9}) \((.{0,64})\) \[(.*)\] \(most recent call (first|last)\):\s*")
_GDB = re.compile(
    r'Thread (\d{1,6}) \((?:Thread 0x[0-9a-f]+ )?\(?(?:LWP|process) (\d{1,9})\)?(?: "(.{0,64})")?\)?(?: "(.{0,64})")?\):?\s*'
)
# What a timer of faulthandler prints above all threads when it has run out: it begins anew after each dump.
_TIMER = re.compile(r"Timeout \((?:(\d{1,5}):)?(\d{1,2}):(\d\d)(?:\.\d{1,6})?\)!\s*")
# An argument of the frame above it, as `py-spy dump --locals` prints it.
_PEER = re.compile(r" +(?:dst|src): (\d{1,7})")
_FIRST_THREAD = "gdb 1"
# What gdb prints of the one thread that it is at, to which no header belongs.
INNERMOST = re.compile(r"#0 +(?:0x[0-9a-f]+ in )?\S")
_ALONE = "gdb alone"
_NATIVE_ENTRIES = frozenset({"main", "_start", "__libc_start_main", "Py_RunMain", "Py_BytesMain"})


@dataclass(slots=True)
class Thread:
    """One thread while its lines are read.

    `handle` is its number as written, `indent` that of its frames; `dump` counts the dumps of the file, `time_ns` is the time
    written above the dump, `place` where its process says it stands in a parallel layout,
    `peer` the rank that it sends to or receives from, `clock_s` the time of day above the dump where no date stands there,
    `timer_s` how long the timer ran that asked for the dump.
    """

    line: int
    number: int | None
    name: str | None
    status: str | None
    pid: int | None
    handle: str
    backwards: bool = False
    indent: int | None = None
    dump: int = 0
    time_ns: int | None = None
    rank: int | None = None
    place: Place | None = None
    peer: int | None = None
    clock_s: int | None = None
    timer_s: int | None = None
    frames: list[Frame] = field(default_factory=list)


@dataclass(slots=True)
class _Dumps:
    """Counts the dumps of a file: one begins when a thread comes that the dump before it has already."""

    seen: set[tuple[int | None, str, str | None]] = field(default_factory=set)
    number: int = 0
    written_ns: int | None = None
    time_ns: int | None = None
    written_s: int | None = None
    timer_s: int | None = None

    def place(self, thread: Thread) -> None:
        """Say of a thread in which dump it is, and when that was made."""
        key = (thread.pid, thread.handle, thread.name)
        if key in self.seen:
            self.number, self.seen = self.number + 1, set()
        if not self.seen:
            self.time_ns, self.written_ns = self.written_ns, None
            self.timer_s, self.written_s = self.written_s, None
        self.seen.add(key)
        thread.dump, thread.time_ns, thread.timer_s = self.number, self.time_ns, self.timer_s

    def date(self, line: str) -> None:
        """Keep the time that a line between dumps gives, and how long the timer of the next one ran."""
        written, ran = time_in(line), timer_in(line)
        self.written_s = self.written_s if ran is None else ran
        self.written_ns = self.written_ns if written is None else written


def timer_in(line: str) -> int | None:
    """Seconds after which a timer of faulthandler dumped what follows, as `Timeout (0:10:00)!` says it."""
    found = _TIMER.fullmatch(line) if line.startswith("Timeout (") else None
    return None if found is None else 3600 * int(found[1] or 0) + 60 * int(found[2]) + int(found[3])


def _clock(line: str, known: int | None) -> int | None:
    """The time of day that a line between dumps gives, else the one that was known."""
    said = clock_in(line) if len(line) <= LONGEST_HEADING else None
    return known if said is None else said


def threads_in(lines: Iterable[tuple[int, str]]) -> Iterator[Thread]:
    """Threads in file order; a line that is neither a header nor a frame may be a time, and is passed over."""
    pid: int | None = None
    thread: Thread | None = None
    rank: int | None = None
    clock: int | None = None
    places: dict[int, Place | None] = {}
    ranks: dict[int, int] = {}
    dumps = _Dumps()
    for number, line in lines:
        if match := PROCESS.match(line):
            pid = int(match[1])
            places[pid] = place_of(line[match.end() :]) or places.get(pid)
            if given := _GIVEN.search(line):
                ranks[pid] = int(given[1])
            continue
        if len(line) <= LONGEST_HEADING and (match := HEADING.fullmatch(line)):
            pid, rank, dumps = None, int(match[1] or match[2]), _Dumps()
            continue
        if len(line) <= LONGEST_HEADING and OTHERS.fullmatch(line):
            pid, rank, dumps = None, None, _Dumps()
            continue
        if len(line) <= LONGEST_HEADING and (match := OF_PROCESS.fullmatch(line)):
            pid = int(match[1])
            clock = _clock(line, clock)
            dumps.date(line)
            continue
        if "RANK=" in line and len(line) <= LONGEST_HEADING and (match := ENVIRONMENT.fullmatch(line)):
            pid, rank = None, int(match[1])
            continue
        started = header(line, number, pid) or _alone(line, number, pid, thread)
        if started is not None:
            if thread is not None:
                yield _whole(thread)
            thread = started
            if pid is not None:
                thread.place = places.get(pid)
            thread.rank = ranks.get(pid) if rank is None and pid is not None else rank
            dumps.place(thread)
            thread.clock_s = clock
            if thread.handle == _ALONE and (first := frame(line)):
                _add(thread, first, 0)
        elif thread is not None and thread.peer is None and (said := _PEER.fullmatch(line)):
            thread.peer = int(said[1]) if thread.frames and names_peer(thread.frames[-1]) else None
        elif (found := frame(line)) is None:
            if told := dumped(line):
                places[told[0]] = told[1]
            dumps.date(line)
            clock = _clock(line, clock)
        elif thread is not None:
            _add(thread, found, len(line) - len(line.lstrip()))
    if thread is not None:
        yield _whole(thread)


def _alone(line: str, number: int, pid: int | None, before: Thread | None) -> Thread | None:
    """The thread whose frames begin here without a header, where no thread of the text has one."""
    begins = (before is None or before.handle == _ALONE) and INNERMOST.match(line)
    return Thread(number, None, None, None, pid, _ALONE) if begins else None


def _add(thread: Thread, frame: Frame, indent: int) -> None:
    """A frame of the thread; what stands at another indent than the first one is the value of a variable."""
    if thread.indent is None:
        thread.indent = indent
    if indent == thread.indent and len(thread.frames) < MAX_DEPTH:
        thread.frames.append(frame)


def _whole(thread: Thread) -> Thread:
    """The thread with its innermost frame first."""
    frames = thread.frames[::-1] if thread.backwards else innermost_first(thread.frames)
    return replace(thread, frames=list(frames))


def header(line: str, number: int, pid: int | None) -> Thread | None:
    """A thread header; py-spy gives the OS thread id in decimal, while a hexadecimal number is a pthread handle."""
    if match := _PY_SPY.fullmatch(line):
        os_thread = None if match[1].startswith("0x") else int(match[1])
        return Thread(number, os_thread, match[3], match[2], pid, match[1])
    if match := _FAULTHANDLER.fullmatch(line):
        return Thread(number, None, match[2], None, pid, match[1], backwards=match[3] == "last")
    if match := _PYSTACK.fullmatch(line):
        status = "active+gil" if "Has the GIL" in match[3] else None
        return Thread(number, int(match[1]), None, status, pid, match[1], backwards=match[4] == "last")
    if match := _GDB.fullmatch(line):
        return Thread(number, int(match[2]), match[3] or match[4], None, pid, f"gdb {match[1]}")
    return None


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
    if any(thread.clock_s is not None for thread in threads):
        columns["clock_s"] = [thread.clock_s for thread in threads]
    if any(thread.timer_s is not None for thread in threads):
        columns["timer_s"] = [thread.timer_s for thread in threads]
    if any(thread.peer is not None for thread in threads):
        columns["peer"] = [thread.peer for thread in threads]
    children = {pid: _is_child(artefact, threads, columns, pid) for pid in set(columns["pid"])}
    columns["is_child"] = [children[pid] for pid in columns["pid"]]
    columns["sample"] = [(artefact.sample or 0) + thread.dump for thread in threads]
    columns["time_ns"] = [artefact.captured_ns if thread.time_ns is None else thread.time_ns for thread in threads]
    yield Batch("stacks", columns)
    yield from table.batches()


def _ranks(artefact: Artefact, threads: Sequence[Thread]) -> list[int | None]:
    """Ranks by headings, else by what processes are called; the name of a file goes before what its only process is called."""
    places = {thread.pid: thread.place for thread in threads if thread.pid is not None and thread.place is not None}
    told = world_ranks(places) if artefact.rank is None or len(places) > 1 else {}
    return [told.get(thread.pid) if thread.rank is None and thread.pid is not None else thread.rank for thread in threads]


def _of_processes(threads: list[Thread]) -> list[Thread]:
    """Threads of gdb with their process: it lists the first thread, whose number is the process's, last."""
    found: list[Thread] = []
    first = 0
    for place, thread in enumerate(threads):
        if thread.handle == _FIRST_THREAD:
            found += [replace(each, pid=thread.number) for each in threads[first : place + 1]]
            first = place + 1
    return found + threads[first:]


def _mains(artefact: Artefact, threads: list[Thread]) -> set[int]:
    """Indices of the main threads: by number or name, else in each process of each dump the one that runs the program."""
    told: set[int] = set()
    runs: dict[tuple[int | None, int | None, int], list[int]] = defaultdict(list)
    for index, thread in enumerate(threads):
        pid = artefact.pid if thread.pid is None else thread.pid
        is_numbered = thread.number is not None and pid is not None
        if thread.number == pid if is_numbered else thread.name == "MainThread":
            told.add(index)
        runs[thread.rank, pid, thread.dump].append(index)
    for members in runs.values():
        if not told.intersection(members):
            told |= {index for index in members if is_entry(threads[index].frames) or _begins_in_main(threads[index])}
    return told


def _begins_in_main(thread: Thread) -> bool:
    """Whether the one thread that gdb was at is that of the program: it is, unless somebody chose another one."""
    return thread.handle == _ALONE and bool(thread.frames) and thread.frames[-1][0] in _NATIVE_ENTRIES


def _is_child(artefact: Artefact, threads: list[Thread], columns: Mapping[str, list[Any]], pid: int | None) -> bool | None:
    """By the artefact's name, else by the stack of the process's main thread."""
    if artefact.is_child is not None:
        return artefact.is_child
    rows = zip(threads, columns["pid"], columns["is_main"], strict=True)
    main = next((thread for thread, own, is_main in rows if own == pid and is_main), None)
    return is_child_by_stack(main.frames) if main is not None else False
