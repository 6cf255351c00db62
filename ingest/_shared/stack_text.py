"""Threads in stack dumps as text: py-spy's own form, faulthandler's and gdb's, distinguished line by line."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from forensics.ingest._shared.dump_times import clock_in, time_in
from forensics.ingest._shared.frames import MAX_DEPTH, Frame, innermost_first, names_peer
from forensics.ingest._shared.process_titles import Place, dumped, place_of
from forensics.ingest._shared.stack_frames import frame
from forensics.ingest._shared.stack_headings import LONGEST_HEADING, Heading, below_rule, heading_of, is_rule

PROCESS = re.compile(r"\s*Process (\d{1,9}): ")
# A rank of so many, as the command of the process gives it.
_GIVEN = re.compile(r" --?rank[ =](\d{1,7})(?= |$)")
_OF_SO_MANY = re.compile(r".*(?= --?world[-_]size[ =]\d)")
_LOCAL = re.compile(r" --?local[_-]rank[ =](\d{1,5})(?= |$)")
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
FIRST_THREAD = "gdb 1"
# What gdb prints of the one thread that it is at, to which no header belongs.
_INNERMOST = re.compile(r"#0 +(?:0x[0-9a-f]+ in )?\S")
# What `py-bt` of CPython's extension for gdb prints above the Python frames of the thread that it is at.
OF_PYTHON = "Traceback (most recent call first):"
ALONE = "gdb alone"


@dataclass(slots=True)
class Thread:
    """One thread while its lines are read.

    `handle` is its number as written, `indent` that of its frames; `dump` counts the dumps of the file, `time_ns` is the time
    written above the dump, `place` where its process says it stands in a parallel layout,
    `peer` the rank that it sends to or receives from, `clock_s` the time of day above the dump where no date stands there,
    `timer_s` how long the timer ran that asked for the dump, `host` the place that a heading names,
    `local_rank` what the command of the process says.
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
    host: str | None = None
    local_rank: int | None = None
    frames: list[Frame] = field(default_factory=list)


@dataclass(slots=True)
class _Dumps:
    """Counts the dumps of one owner: one begins when a thread comes that the dump before it has already."""

    seen: set[tuple[int | None, str, str | None]] = field(default_factory=set)
    number: int = 0
    time_ns: int | None = None
    timer_s: int | None = None
    dates: int = 0

    def place(self, thread: Thread, written: _Written) -> None:
        """Say of a thread in which dump it is, and when that was made; a date holds for one dump of each owner."""
        key = (thread.pid, thread.handle, thread.name)
        if key in self.seen:
            self.number, self.seen = self.number + 1, set()
        if not self.seen:
            self.time_ns = written.time_ns if written.dates != self.dates else None
            self.dates = written.dates
            self.timer_s, written.timer_s = written.timer_s, None
        self.seen.add(key)
        thread.dump, thread.time_ns, thread.timer_s = self.number, self.time_ns, self.timer_s


@dataclass(slots=True)
class _Written:
    """Times that lines between dumps gave last: a date, the time of day, how long a timer ran; `dates` counts the dates."""

    time_ns: int | None = None
    clock_s: int | None = None
    timer_s: int | None = None
    dates: int = 0

    def read(self, line: str) -> None:
        """Keep what a line says."""
        written, ran = time_in(line), timer_in(line)
        self.timer_s = self.timer_s if ran is None else ran
        if written is not None:
            self.time_ns, self.dates = written, self.dates + 1
        clock = clock_in(line) if len(line) <= LONGEST_HEADING else None
        self.clock_s = self.clock_s if clock is None else clock


def timer_in(line: str) -> int | None:
    """Seconds after which a timer of faulthandler dumped what follows, as `Timeout (0:10:00)!` says it."""
    found = _TIMER.fullmatch(line) if line.startswith("Timeout (") else None
    return None if found is None else 3600 * int(found[1] or 0) + 60 * int(found[2]) + int(found[3])


class Reading:
    """The lines of a text, or of one of its writers, so far: whose stacks follow, and the thread that is being read."""

    def __init__(self, owner: Heading) -> None:
        self.thread: Thread | None = None
        self._pid: int | None = None
        self._owner = owner
        self._is_ruled = self._is_headed = False
        self._written = _Written()
        self._places: dict[int, Place | None] = {}
        self._ranks: dict[int, int] = {}
        self._local_ranks: dict[int, int] = {}
        self._dumps: dict[Heading, _Dumps] = defaultdict(_Dumps)

    @property
    def rank(self) -> int | None:
        """The rank that the last heading names."""
        return self._owner.rank

    @property
    def host(self) -> str | None:
        """The place that the last heading names."""
        return self._owner.host

    def feed(self, number: int, line: str) -> Thread | None:
        """Take a line; the thread that ends where it begins another one."""
        if match := PROCESS.match(line):
            self._process(int(match[1]), line[match.end() :])
        elif heading := heading_of(line) or (below_rule(line) if self._is_ruled else None):
            self._head(heading, line)
        elif started := header(line, number, self._pid) or self._alone(line, number):
            return self._begin(started, line)
        elif self.thread is not None and self.thread.peer is None and (said := _PEER.fullmatch(line)):
            frames = self.thread.frames
            self.thread.peer = int(said[1]) if frames and names_peer(frames[-1]) else None
        elif (found := frame(line)) is None:
            self._between(line)
        elif self.thread is not None:
            _add(self.thread, found, len(line) - len(line.lstrip()))
        return None

    def _process(self, pid: int, command: str) -> None:
        self._pid = pid
        self._places[pid] = place_of(command) or self._places.get(pid)
        counted = _OF_SO_MANY.match(command)
        if counted and (given := _GIVEN.search(command, 0, counted.end())):
            self._ranks[pid] = int(given[1])
        if local := _LOCAL.search(command):
            self._local_ranks[pid] = int(local[1])

    def _head(self, heading: Heading, line: str) -> None:
        if heading.pid is None or heading.rank is not None or heading.host is not None:
            # The host that was named above holds for the ranks below it.
            host = self._owner.host if heading.host is None else heading.host
            self._owner = Heading(heading.rank, host)
        self._pid = heading.pid
        self._is_ruled, self._is_headed = False, True
        self._written.read(line)

    def _begin(self, started: Thread, line: str) -> Thread | None:
        before, self.thread, self._is_headed = self.thread, started, False
        started.rank, started.host = self._owner.rank, self._owner.host
        if self._pid is not None:
            started.place = self._places.get(self._pid)
            started.local_rank = self._local_ranks.get(self._pid)
            started.rank = self._ranks.get(self._pid) if started.rank is None else started.rank
        self._dumps[self._owner].place(started, self._written)
        started.clock_s = self._written.clock_s
        if started.handle == ALONE and (first := frame(line)):
            _add(started, first, 0)
        return before and _whole(before)

    def _alone(self, line: str, number: int) -> Thread | None:
        """The thread whose frames begin here without a header, where no thread below the last heading has one."""
        before = None if self._is_headed else self.thread
        begins = (before is None or before.handle == ALONE) and begins_alone(line)
        return Thread(number, None, None, None, self._pid, ALONE) if begins else None

    def end(self) -> Thread | None:
        """The last thread."""
        return self.thread and _whole(self.thread)

    def _between(self, line: str) -> None:
        if stated := dumped(line):
            self._places[stated[0]] = stated[1]
        self._is_ruled = is_rule(line)
        self._written.read(line)


def threads_in(lines: Iterable[tuple[int, str]]) -> Iterator[Thread]:
    """Threads in file order; a line that is neither a header nor a frame may be a time, and is passed over."""
    reading = Reading(Heading())
    for number, line in lines:
        if ended := reading.feed(number, line):
            yield ended
    if last := reading.end():
        yield last


def begins_alone(line: str) -> bool:
    """Whether what gdb prints of the one thread that it is at begins here: native frames, or those of Python."""
    return _INNERMOST.match(line) is not None or line.strip() == OF_PYTHON


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
