"""What people save of processes by hand: tables of `ps` and `top`, trees of `pstree -p`, and files of /proc/PID as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import PurePosixPath

from forensics.ingest._shared.training_settings import of_command

MAX_ROWS = 200_000
_PREAMBLE = 12  # lines above a table: a prompt, a date, what `top` says of the machine
_THREAD = frozenset({"LWP", "TID", "SPID"})
_STATE = frozenset({"STAT", "S", "STATE"})
_COMMAND = frozenset({"COMMAND", "CMD", "ARGS", "COMM"})
_LETTERS = frozenset("RSDTtZXI")
_RANK = re.compile(r"(?:^|\s)RANK=(\d{1,7})(?=\s|$)")
_PLACES = {
    "local_rank": re.compile(r"\s(?:--local[_-]rank[= ]|LOCAL_RANK=)(\d{1,5})(?=\s|$)"),
    "node": re.compile(r"\s(?:--(?:node|machine)[_-]rank[= ]|(?:NODE|GROUP)_RANK=)(\d{1,6})(?=\s|$)"),
    "per_node": re.compile(r"\s--(?:nproc(?:[_-]per[_-]node)?|num[_-]gpus)[= ](\d{1,5})(?=\s|$)"),
}
# A launcher that starts one node: behind its options stands the program, so that none of them was cut.
_LAUNCHER = re.compile(
    r"\b(?:torchrun|torch\.distributed\.(?:run|launch))\s(?!.*--(?:nnodes|node[_-]rank|rdzv))"
    r".*--nproc[_-]per[_-]node[= ](\d{1,4})\s(?:.* )?(?:\S+\.py\b|-m\s+\S)"
)
_FORMAT = re.compile(r"\bps [^|;\n]{0,400}?-[A-Za-z]*o[ =]?([a-z_]{1,12}(?::\d{1,4})?(?:,[a-z_]{1,12}(?::\d{1,4})?)+)")
_COLUMNS = {
    **dict.fromkeys(("args", "cmd", "command", "comm", "ucmd"), "COMMAND"),
    **dict.fromkeys(("stat", "state", "s"), "STAT"),
    **dict.fromkeys(("lwp", "tid", "spid"), "LWP"),
}
_FOREST = re.compile(r"(?:[ |]{0,64}\\_ )+")
_OF_A_TIME = 5
"""Words of `lstart`: `Fri Aug 8 17:59:40 2025`."""
_TREE = re.compile(r"(?<![\w{])([\w.+-]{1,64})\((\d{1,9})\)")
_BRANCH = re.compile(r"[\s|`+-]*\{?[\w.+-]{1,64}\}?\(\d{1,9}\)(?:[-+`|\s]|$)")
_OF_PROC = re.compile(r"(?:==> *)?/proc/(?:\d{1,9}/task/)?(\d{1,9})/(status|stack|wchan|comm|stat|cmdline)\b *(?:<==)?:? *(.*)")
# The command that prints one, with what somebody noted behind it.
_PRINTED = re.compile(
    r".{0,160}?\b(?:cat|head|tail|more|less)(?: -\S{1,8})? /proc/(?:\d{1,9}/task/)?(\d{1,9})/(status|stack|wchan|comm|stat)\b()"
)
_FIELD = re.compile(r"(Name|State|Tgid|Pid|TracerPid|SigCgt|voluntary_ctxt_switches|nonvoluntary_ctxt_switches):[ \t]+(\S.*)")
_KERNEL_FRAME = re.compile(r"\[<(?:0|[0-9a-f]{8,16})>\] ([\w.]+)\+0x[0-9a-f]+/0x[0-9a-f]+")
_WORD = re.compile(r"[a-z_][\w.]{2,80}")
_NUMBER = re.compile(r"(?<!\d)(\d{2,9})(?!\d)")


@dataclass(slots=True)
class Seen:
    """One thread in one table or file: `rank` where its environment tells it, `place` what its command tells of its node.

    `settings` are options of its command that tell how the training is set up, `starts` says how many processes a launcher
    of one node starts.
    """

    line: int
    pid: int | None = None
    thread: int | None = None
    name: str | None = None
    state: str | None = None
    wchan: str | None = None
    stack: str | None = None
    tracer: int | None = None
    switches: int | None = None
    caught: str | None = None
    rank: int | None = None
    place: Mapping[str, int] = field(default_factory=dict)
    settings: tuple[tuple[str, str], ...] = ()
    sample: int = 0
    starts: int | None = None


def is_table(lines: Sequence[str]) -> bool:
    """Whether most of the first lines are of a table of processes, a tree of them, or files of /proc."""
    headers = [place for place, line in enumerate(lines[:_PREAMBLE]) if _header(line)]
    # Of one process for each GPU the command, and the heading, of the next look may stand as near.
    first = (place for place in headers if _row(_header(lines[place]), 0, "".join(lines[place + 1 : place + 2])) is not None)
    header = next(first, headers[-1] if headers else None)
    if header is not None:
        columns = _header(lines[header])
        rows = [_row(columns, 0, line) is not None for line in lines[header + 1 :] if line.strip()]
        # Between two tables of `top` stands what it says of the machine.
        return rows[:1] == [True] and 4 * sum(rows) >= len(rows)
    written = [line for line in lines if line.strip()]
    fitting = sum(bool(_FIELD.match(line) or _KERNEL_FRAME.match(line) or _OF_PROC.match(line)) for line in written)
    if any(_FIELD.match(line) for line in written):
        return sum(line.startswith(("State:\t", "Pid:\t", "Tgid:\t")) for line in written) > 1
    is_tree = all(_BRANCH.match(line) for line in written) and sum(len(_TREE.findall(line)) for line in written) > 1
    return bool(written) and (2 * fitting > len(written) or is_tree)


def read_table(lines: Iterable[tuple[int, str]], path: str) -> Iterator[Seen]:
    """Threads in the order of the text; a second header begins the next sample, as `top -b` and `watch` write them."""
    columns: list[str] = []
    sample, has_rows, proc = 0, False, _Proc(path)
    for number, line in lines:
        header = _header(line)
        if header:
            # A command stands above the heading that it prints.
            sample += has_rows
            columns, has_rows = header, False
        elif columns:
            if (found := _row(columns, number, line)) is not None:
                found.sample, has_rows = sample, True
                yield found
        elif _BRANCH.match(line):
            yield from (Seen(number, int(pid), int(pid), name) for name, pid in _TREE.findall(line))
        else:
            yield from proc.take(number, line)
    yield from proc.finished()


def _header(line: str) -> list[str]:
    """Columns of a table of processes, or of the command that prints one; empty for any other line."""
    if asked := _FORMAT.search(line):
        return _asked(asked[1])
    words = line.strip(" %|").split()
    upper = [word for word in words if word == word.upper()]
    has_command = bool(words) and words[-1] in _COMMAND
    return words if len(words) > 2 and len(upper) == len(words) and "PID" in words and has_command else []


def _asked(names: str) -> list[str]:
    """Columns of `ps -o pid,stat,args`, whose heading a filter behind it drops."""
    plain = [name.partition(":")[0] for name in names.split(",")]
    words = [_COLUMNS.get(name, name.upper()) for name in plain]
    columns = [each for word in words for each in ([word] * _OF_A_TIME if word == "LSTART" else [word])]
    return columns if "PID" in columns and columns[-1] in _COMMAND else []


def _row(columns: list[str], number: int, line: str) -> Seen | None:
    values = line.split(None, len(columns) - 1)
    if len(values) < len(columns):
        return None
    by_name = dict(zip(columns, values, strict=True))
    pid = by_name["PID"]
    if not (pid.isascii() and pid.isdecimal() and len(pid) < 10):
        return None
    command = _FOREST.sub("", values[-1].strip())
    thread = next((by_name[name] for name in columns if name in _THREAD), pid)
    state = next((by_name[name][:1] for name in columns if name in _STATE), None)
    if "<defunct>" in command:
        state = "Z"
    # What traces a process in the moment of the table is as a rule the debugger that takes its stack.
    state = state if state in _LETTERS - {"t"} else None
    wchan = by_name.get("WCHAN")
    rank, launcher = _RANK.search(command), _LAUNCHER.search(command)
    return Seen(
        starts=int(launcher[1]) if launcher else None,
        line=number,
        pid=int(pid),
        thread=int(thread) if thread.isdecimal() and len(thread) < 10 else int(pid),
        name=PurePosixPath(command.split()[0]).name[:64],
        state=state,
        wchan=wchan if wchan and _WORD.fullmatch(wchan) else None,
        rank=int(rank[1]) if rank else None,
        settings=tuple(of_command(command, is_whole=False)) if " --" in command else (),
        place={name: int(said[1]) for name, stated in _PLACES.items() if (said := stated.search(command))},
    )


class _Proc:
    """Files of /proc one after the other: of which process they are is said inside, by a path before them, or by the name."""

    def __init__(self, path: str) -> None:
        self._pid = _pid_of(path)
        self._open: Seen | None = None

    def take(self, number: int, line: str) -> Iterator[Seen]:
        if match := _OF_PROC.match(line) or _PRINTED.match(line):
            pid, kind, rest = int(match[1]), match[2], match[3].strip()
            if self._open is not None and self._open.pid not in (None, pid):
                yield from self.finished()
            self._pid = pid
            if kind == "wchan" and _WORD.fullmatch(rest):
                self._seen(number).wchan = rest
            line = rest
        if match := _FIELD.match(line):
            if match[1] == "Name" and self._open is not None and self._open.name is not None:
                yield from self.finished()
            self._field(self._seen(number), match[1], match[2].strip())
        elif match := _KERNEL_FRAME.match(line):
            seen = self._seen(number)
            seen.wchan = seen.wchan or match[1]
            seen.stack = "\n".join(filter(None, (seen.stack, line.strip()[:200])))

    def _seen(self, number: int) -> Seen:
        self._open = self._open or Seen(number, self._pid, self._pid)
        return self._open

    def _field(self, seen: Seen, name: str, value: str) -> None:
        digits = int(value) if value.isdecimal() and len(value) < 16 else None
        if name == "Name":
            seen.name = value[:64]
        elif name == "State":
            seen.state = value[0] if value[0] in _LETTERS else None
        elif name == "Tgid":
            seen.pid = digits
        elif name == "Pid":
            seen.pid, seen.thread = seen.pid or digits, digits
        elif name == "TracerPid":
            seen.tracer = digits
        elif name == "SigCgt":
            seen.caught = value
        elif digits is not None:
            seen.switches = (seen.switches or 0) + digits

    def finished(self) -> Iterator[Seen]:
        """The process that was read last, when it can be stated which one it was."""
        if self._open is not None and self._open.pid is not None:
            yield self._open
        self._open = None


def _pid_of(path: str) -> int | None:
    """The one number in the name of a file or of its folder."""
    parts = PurePosixPath(path).parts[-2:]
    found = [_NUMBER.findall(part) for part in reversed(parts)]
    own = next(takewhile(lambda numbers: len(numbers) == 1, filter(None, found)), None)
    return int(own[0]) if own else None
