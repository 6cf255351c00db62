"""Processes that py-spy could not read, by what it prints in place of their stacks.

Upstream: `py_spy::python_spy::get_stack_traces`, py-spy 0.4, and remoteprocess 0.5 (`PTRACE_SEIZE`, `PTRACE_INTERRUPT`,
`waitpid`). A process that a signal has stopped reports that signal (ptrace(2), group-stop) in place of SIGTRAP. One that a
debugger traces, and one that may not be traced, is refused with EPERM, which says nothing of it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.stack_text import PROCESS
from forensics.ingest.interface import Batch

MAX_REFUSED = 100_000
NOT_FOUND = "process_not_found"
_STOPPED = re.compile(
    r"\s*(?:\d{1,3}: )?unexpected waitpid result (?:PtraceEvent|Stopped)\(Pid\((\d{1,9})\), SIG(?:STOP|TSTP|TTIN|TTOU)\b.{0,80}"
)
# Asked for by its number, which nothing in the text repeats.
_GONE = re.compile(r"Error: Failed to get process executable name\. Check that the process is running\.\s*")
_COMMAND = re.compile(r".{0,80}\bpy-spy dump\b.{0,80}?(?:--pid|-p)[ =](\d{1,9})\b.{0,80}")
_ERROR = "Error: Failed to "


def has_refused(text: str) -> bool:
    """Whether py-spy says of a process in the text that it is stopped, or gone."""
    return _ERROR in text and any(is_refused(line) for line in text.splitlines())


def is_refused(line: str) -> bool:
    """Whether a line says so."""
    return _STOPPED.fullmatch(line) is not None or _GONE.fullmatch(line) is not None


class RefusedDumps:
    """Collects such processes of a text, and the ranks whose process was gone when py-spy was asked for it."""

    def __init__(self) -> None:
        self._stopped: dict[str, list[Any]] = defaultdict(list)
        self._placed: dict[str, list[Any]] = defaultdict(list)
        self._gone: dict[tuple[int | None, int | None], None] = {}
        self._pid: int | None = None

    def feed(self, number: int, line: str, rank: int | None, host: str | None) -> None:
        """Take a line of the text, below a heading of this rank or this place."""
        if stopped := _STOPPED.fullmatch(line) if "waitpid" in line else None:
            self._add_stopped(int(stopped[1]), rank)
        elif _GONE.fullmatch(line):
            self._add_placed(number, line, host if rank is None else None)
            self._add_gone(rank)
        elif PROCESS.match(line):
            self._pid = None  # it was found, and is not the one that is missed next
        elif asked := _COMMAND.fullmatch(line) if "py-spy dump" in line else None:
            self._pid = int(asked[1])

    def _add_stopped(self, pid: int, rank: int | None) -> None:
        if len(self._stopped["pid"]) < MAX_REFUSED:
            for name, value in {"pid": pid, "thread": pid, "rank": rank}.items():
                self._stopped[name].append(value)

    def _add_gone(self, rank: int | None) -> None:
        if len(self._gone) < MAX_REFUSED:
            self._gone[rank, self._pid] = None
        self._pid = None

    def _add_placed(self, number: int, line: str, host: str | None) -> None:
        if host is not None and self._pid is not None and len(self._placed["host"]) < MAX_REFUSED:
            event = {"locator": number, "host": host, "kind": NOT_FOUND, "subject": f"pid={self._pid}", "text": line}
            for name, value in event.items():
                self._placed[name].append(value)

    def batches(self, artefact: Artefact) -> Iterator[Batch]:
        """Rows of `processes` and `ranks`, else of `log_events`; a rank of the text goes before that of the file."""
        if self._placed and artefact.rank is None:
            yield Batch("log_events", self._placed)
        if count := len(self._stopped["pid"]):
            ranks = [artefact.rank if rank is None else rank for rank in self._stopped["rank"]]
            fixed = {"state": "T", "is_child": False, "sample": artefact.sample or 0, "time_ns": artefact.captured_ns}
            yield Batch("processes", self._stopped | {"rank": ranks} | {name: [each] * count for name, each in fixed.items()})
        gone = {artefact.rank if rank is None else rank: pid for rank, pid in self._gone}
        if known := [(rank, pid) for rank, pid in gone.items() if rank is not None]:
            yield Batch(
                "ranks",
                {"rank": [rank for rank, _ in known], "pid": [pid for _, pid in known], "state": ["absent"] * len(known)},
            )
