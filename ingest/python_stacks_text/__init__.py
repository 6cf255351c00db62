"""Stack dumps as text: py-spy's own form, faulthandler's, gdb's and cuda-gdb's (docs/formats/python-stacks-text.md)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from forensics.bundle.artefact import Artefact
from forensics.ingest._job_logs.front import front
from forensics.ingest._shared.content import Lines
from forensics.ingest._shared.device_kernels import DeviceKernels, is_kernels
from forensics.ingest._shared.dump_times import time_in
from forensics.ingest._shared.process_titles import dumped
from forensics.ingest._shared.prompts import is_command
from forensics.ingest._shared.refused_dumps import RefusedDumps, has_refused, is_refused
from forensics.ingest._shared.stack_frames import frame
from forensics.ingest._shared.stack_headings import Heading, heading_of, host_before, is_rule
from forensics.ingest._shared.stack_rows import stack_batches
from forensics.ingest._shared.stack_text import OF_PYTHON, PROCESS, Reading, Thread, begins_alone, header, timer_in
from forensics.ingest.interface import Ingester, Item, Problem

Writer = tuple[int | None, tuple[tuple[str, str], ...]]
"""A rank, and labels of who writes, as they stand in front of a line."""
MAX_THREADS = 100_000
_NOBODY: Writer = (None, ())
_PLACES, _TASK = ("pod", "service"), "task "
_LONGEST_DATE, _LONGEST_VARIABLE = 60, 160
# A server's watchdog says of each stack that it has written how long nothing was finished.
_BY_WATCHDOG = b"Pyspy dump for PID "
# torch prints below a time-out where its recorder saw that the call was made, frame by frame as gdb numbers them.
_OF_TIMEOUT = b"Stack trace of the failed collective: "
# What `py-spy dump --locals` prints below a frame.
_VARIABLE = re.compile(r" {8}(?:Arguments|Locals):$| {12}[A-Za-z_.]\w{0,200}: ")
_FENCE = "```"
_OF_GDB = ("Python v", "[New LWP", "[Inferior ", "warning: ", "(gdb) ", "[Thread debugging ", "Using host libthread_db ")
_OF_ENVIRONMENT = re.compile(r"(?:export )?[A-Z_][A-Z0-9_]{1,63}=\S*\s*")


def sniff(head: bytes, path: str) -> int:
    """Text that is mostly thread headers and frames; a log in which a program dumped its stacks is still a log.

    A dump has one date; Python's own word that it ends, and what a process wrote beside the dumps of a timer, are of a log.
    """
    if b" Grid Status " in head or b"CUDA kernel " in head:
        return 75 if is_kernels(head.decode("utf-8", "replace")) else 0
    if b"Error: Failed to " in head and has_refused(head.decode("utf-8", "replace")):
        return 70
    # One of these stands in every header, and in what gdb prints of one thread.
    if b"hread " not in head and b"#0 " not in head and OF_PYTHON.encode() not in head:
        return 0
    written = (_plain(line) for line in head.decode("utf-8", "replace").splitlines())
    lines = [line for line in written if line.strip() and not _is_about_the_dump(line)]
    headers = sum(header(line, 0, None) is not None or begins_alone(line) for line in lines)
    frames = sum(frame(line) is not None for line in lines)
    dated = sum(_is_dated(line) for line in lines)
    # Below a frame gdb prints the line of its source, above all frames the built-in function that they are in.
    sources = frames + headers if OF_PYTHON.encode() in head else 0
    others = len(lines) - headers - frames - min(dated, headers) - sources
    is_timed = others > 0 and b"\nTimeout (" in b"\n" + head and _is_beside_others(head)
    is_log = b"\nFatal Python error: " in b"\n" + head or is_timed
    is_log = is_log or _BY_WATCHDOG in head or _OF_TIMEOUT in head
    return 70 if headers and frames and headers + frames > others and not is_log else 0


def _is_beside_others(head: bytes) -> bool:
    """Whether a process wrote something beside its dumps: not what stands around the fences of a page in Markdown."""
    text = head.decode("utf-8", "replace")
    pasted = [part.partition("\n")[2] for part in text.split(_FENCE)[1::2]] or [text]
    plain = (_plain(line) for part in pasted for line in part.splitlines() if line.strip())
    return any(not (_is_about_the_dump(line) or _is_of_a_stack(line) or _is_dated(line)) for line in plain)


def _is_about_the_dump(line: str) -> bool:
    """Lines above the first thread: of a short stack they would outnumber what makes it one."""
    return (
        PROCESS.match(line) is not None
        or heading_of(line) is not None
        or is_rule(line)
        or dumped(line) is not None
        or _VARIABLE.match(line) is not None
        or is_command(line)
        or _OF_ENVIRONMENT.fullmatch(line[:_LONGEST_VARIABLE]) is not None
        or line.startswith(_OF_GDB)
        or timer_in(line) is not None
    )


def _is_dated(line: str) -> bool:
    return len(line) <= _LONGEST_DATE and time_in(line) is not None and frame(line) is None and header(line, 0, None) is None


def _plain(line: str) -> str:
    """A line of a dump without what a launcher or a runtime of containers wrote in front of it."""
    return _written(line)[1]


def _written(line: str) -> tuple[Writer, str]:
    """Who wrote a line of a dump, by what stands in front of it, and the line without that."""
    found = front(line)
    text = found.bare[found.text :]
    if text != line and (_is_of_a_stack(text) or is_refused(text)):
        return (found.rank, found.labels), text
    if (answered := host_before(line)) and _is_of_a_stack(answered[1]):
        return (None, (("pod", answered[0]),)), answered[1]
    return _NOBODY, line


def _is_of_a_stack(text: str) -> bool:
    return header(text, 0, None) is not None or frame(text) is not None or PROCESS.match(text) is not None


def rows(artefact: Artefact) -> Iterator[Item]:
    """One row a thread of every dump in the file, each dump a sample."""
    threads: list[Thread] = []
    lines, kernels, refused = Lines(artefact), DeviceKernels(), RefusedDumps()
    for thread in _threads(lines, kernels, refused):
        threads.append(thread)
        if len(threads) == MAX_THREADS:
            yield Problem(f"more than {MAX_THREADS} threads; the rest was left out", f"line={thread.line}")
            break
    if lines.problem is not None:
        yield lines.problem
    found = [*kernels.batches(artefact), *refused.batches(artefact)]
    if not threads and not found:
        yield Problem("no thread could be read", "line=1", fatal=True)
        return
    yield from found
    if threads:
        yield from stack_batches(artefact, _with_tasks(threads))


def _threads(lines: Iterable[tuple[int, str]], kernels: DeviceKernels, refused: RefusedDumps) -> Iterator[Thread]:
    """Threads of all writers, whose lines may be mixed."""
    readings: dict[Writer, Reading] = {}
    for number, line in lines:
        writer, text = _written(line)
        kernels.feed(number, text)
        if writer not in readings:
            writer = writer if len(readings) < MAX_THREADS else _NOBODY
            readings.setdefault(writer, Reading(_owner(writer)))
        reading = readings[writer]
        if ended := reading.feed(number, text):
            yield ended
        refused.feed(number, text, reading.rank, reading.host)
    for reading in readings.values():
        if last := reading.end():
            yield last


def _owner(writer: Writer) -> Heading:
    """Whose the stacks of a writer are; what is numbered by tasks is settled when all are known."""
    rank, labels = writer
    name = next((name for kind, name in labels if kind in _PLACES), None)
    task = next((number for kind, number in labels if kind == "task"), None)
    return Heading(rank, f"{_TASK}{task}" if name is None and task is not None else name)


def _with_tasks(threads: Sequence[Thread]) -> list[Thread]:
    """Tasks of a launcher are ranks where each is one process; else each is what starts the processes of a host."""
    processes: dict[str, set[int | None]] = defaultdict(set)
    for thread in threads:
        if thread.host is not None and thread.host.startswith(_TASK):
            processes[thread.host].add(thread.pid)
    if any(len(pids) > 1 for pids in processes.values()):
        return list(threads)
    return [
        replace(thread, rank=int(thread.host.removeprefix(_TASK)), host=None) if thread.host in processes else thread
        for thread in threads
    ]


INGESTER = Ingester("python_stacks_text", "python_stacks", sniff, rows, most=75)
