"""`strace -p PID`: the system call that each thread of a process is in (docs/formats/system-calls.md).

Upstream: strace 4 to 6, its default format, with `-f`, `-t`, `-tt`, `-T`, `-y` or `-yy`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import Lines
from forensics.ingest._shared.stack_rows import stack_batches
from forensics.ingest._shared.stack_text import Thread
from forensics.ingest.interface import Ingester, Item, Problem

MAX_THREADS = 10_000
_LONGEST = 2048
_LEAST_LINES = 2
_ATTACHED = re.compile(r"(?:strace: )?Process (\d{1,9}) attached(?: with \d{1,6} threads)?\s*")
_FRONT = (
    r"(?:\[pid {1,6}(?P<pid>\d{1,9})\] |(?P<bare>\d{1,9}) {1,6}(?=[\d<a-z]))?(?:\d\d:\d\d:\d\d(?:\.\d{1,6})? |\d{10}\.\d{6} )?"
)
_CALL = re.compile(_FRONT + r"(?P<name>[a-z_][a-z0-9_]{1,31})\((?P<arguments>.*)")
_RESUMED = re.compile(_FRONT + r"<\.\.\. (?P<name>[a-z_][a-z0-9_]{1,31}) resumed>")
_ENDED = re.compile(r"\) {1,40}= (?:-?\d|0x|\?)")
_NOTE = re.compile(
    _FRONT + r"(?:\+\+\+ |--- SIG|strace: |\^C|Process \d{1,9} (?:attached|detached)|restart_syscall)"
    r"| ?<(?:detached|unfinished) \.\.\.>|\$ |# |\[?\w+@"
)
_OPENED = re.compile(r'open(?:at2?)?\((?:[^,"]{1,64}, )?"(?P<path>[^"]{1,400})".*\) {1,40}= (?P<file>\d{1,7})\b')
_FILE = re.compile(r"(?P<file>\d{1,7})(?:<(?P<path>[^>]{1,400})>)?(?=[,)]|$)")


@dataclass(slots=True)
class _Traced:
    """What was seen: of each thread the line and text of its last call; files by number; the process that was attached to."""

    calls: dict[int | None, tuple[int, str, str]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    process: int | None = None

    def feed(self, number: int, line: str) -> None:
        """Take one line."""
        if attached := _ATTACHED.fullmatch(line):
            self.process = self.process or int(attached[1])
        elif (said := _CALL.match(line) or _RESUMED.match(line)) and self._has_place(_thread(said)):
            if opened := _OPENED.search(line):
                self.files[opened["file"]] = opened["path"]
            self.calls[_thread(said)] = number, said["name"], said.groupdict().get("arguments") or ""

    def _has_place(self, thread: int | None) -> bool:
        return thread in self.calls or len(self.calls) < MAX_THREADS

    def threads(self, artefact: Artefact) -> Iterator[Thread]:
        """Each with one frame: the call, and the file that it is about where the trace shows its name."""
        process = self.process or artefact.pid or min((pid for pid in self.calls if pid is not None), default=None)
        for pid, (number, name, arguments) in self.calls.items():
            own = process if pid is None else pid
            path = self._path(arguments)
            yield Thread(number, own, None, None, process, str(own), frames=[(name, path, None)])

    def _path(self, arguments: str) -> str | None:
        said = _FILE.match(arguments)
        return (said["path"] or self.files.get(said["file"])) if said else None


def _thread(said: re.Match[str]) -> int | None:
    written = said["pid"] or said["bare"]
    return int(written) if written else None


def sniff(head: bytes, path: str) -> int:
    """Lines of calls with what they returned, the last of each thread open, and nothing else."""
    if b"(" not in head or b"\0" in head or (b") = " not in head and b" attached" not in head and b"resumed>" not in head):
        return 0
    lines = [line for line in head.decode("utf-8", "replace").splitlines() if line.strip()]
    if lines and not _is_of_trace(lines[-1]):
        del lines[-1]  # it may be cut
    attached = sum(_ATTACHED.fullmatch(line) is not None for line in lines)
    called = [line for line in lines if _CALL.match(line) or _RESUMED.match(line)]
    ended = sum(_ENDED.search(line) is not None for line in called)
    is_trace = len(called) + attached >= _LEAST_LINES and (attached or 2 * ended >= len(called))
    return 72 if called and is_trace and all(map(_is_of_trace, lines)) else 0


def _is_of_trace(line: str) -> bool:
    return any(form.match(line) for form in (_ATTACHED, _CALL, _RESUMED, _NOTE))


def rows(artefact: Artefact) -> Iterator[Item]:
    """One row a thread: the last call that the trace shows of it."""
    traced, lines = _Traced(), Lines(artefact)
    for number, line in lines:
        traced.feed(number, line[:_LONGEST].rstrip())
    if lines.problem is not None:
        yield lines.problem
    threads = list(traced.threads(artefact))
    if not threads:
        yield Problem("no system call could be read", "line=1", fatal=True)
        return
    yield from stack_batches(artefact, threads)


INGESTER = Ingester("system_calls", "python_stacks", sniff, rows, most=72)
