"""Stack dumps as text: py-spy's own form, faulthandler's, gdb's and cuda-gdb's (docs/formats/python-stacks-text.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.bundle.artefact import Artefact
from forensics.ingest._job_logs.front import front
from forensics.ingest._shared.content import Lines
from forensics.ingest._shared.device_kernels import DeviceKernels, is_kernels
from forensics.ingest._shared.dump_times import time_in
from forensics.ingest._shared.process_titles import dumped
from forensics.ingest._shared.prompts import is_command
from forensics.ingest._shared.stack_frames import frame
from forensics.ingest._shared.stack_headings import ENVIRONMENT, HEADING, LONGEST_HEADING, OF_PROCESS, OTHERS
from forensics.ingest._shared.stack_text import (
    INNERMOST,
    PROCESS,
    header,
    stack_batches,
    threads_in,
    timer_in,
)
from forensics.ingest.interface import Ingester, Item, Problem

MAX_THREADS = 100_000
_LONGEST_DATE = 60
# A server's watchdog says of each stack that it has written how long nothing was finished.
_BY_WATCHDOG = b"Pyspy dump for PID "
# What `py-spy dump --locals` prints below a frame.
_VARIABLE = re.compile(r" {8}(?:Arguments|Locals):$| {12}[A-Za-z_.]\w{0,200}: ")
_OF_ENVIRONMENT = re.compile(r"(?:export )?[A-Z_][A-Z0-9_]{1,63}=\S*\s*")


def sniff(head: bytes, path: str) -> int:
    """Text that is mostly thread headers and frames; a log in which a program dumped its stacks is still a log.

    A dump has one date; Python's own word that it ends, and what a process wrote beside the dumps of a timer, are of a log.
    """
    if b" Grid Status " in head or b"CUDA kernel " in head:
        return 75 if is_kernels(head.decode("utf-8", "replace")) else 0
    if b"hread " not in head and b"#0 " not in head:  # of every header, and of what gdb prints of one thread
        return 0
    written = (_plain(line) for line in head.decode("utf-8", "replace").splitlines())
    lines = [line for line in written if line.strip() and not _is_about_the_dump(line)]
    headers = sum(header(line, 0, None) is not None or INNERMOST.match(line) is not None for line in lines)
    frames = sum(frame(line) is not None for line in lines)
    dated = sum(_is_dated(line) for line in lines)
    others = len(lines) - headers - frames - min(dated, headers)
    is_log = b"\nFatal Python error: " in b"\n" + head or (others > 0 and b"\nTimeout (" in b"\n" + head)
    is_log = is_log or _BY_WATCHDOG in head
    return 70 if headers and frames and headers + frames > others and not is_log else 0


def _is_about_the_dump(line: str) -> bool:
    """Lines above the first thread: of a short stack they would outnumber what makes it one."""
    start = line[:LONGEST_HEADING]
    return (
        PROCESS.match(line) is not None
        or any(form.fullmatch(start) for form in (HEADING, OTHERS, ENVIRONMENT, OF_PROCESS))
        or dumped(line) is not None
        or _VARIABLE.match(line) is not None
        or is_command(line)
        or _OF_ENVIRONMENT.fullmatch(start) is not None
        or line.startswith(("Python v", "[New LWP", "[Inferior ", "warning: "))
        or timer_in(line) is not None
    )


def _is_dated(line: str) -> bool:
    return len(line) <= _LONGEST_DATE and time_in(line) is not None and frame(line) is None and header(line, 0, None) is None


def _plain(line: str) -> str:
    """A line of a dump without what a launcher or a runtime of containers wrote in front of it."""
    found = front(line)
    text = found.bare[found.text :]
    return text if text != line and (header(text, 0, None) or frame(text) or PROCESS.match(text)) else line


def rows(artefact: Artefact) -> Iterator[Item]:
    """One row a thread of every dump in the file, each dump a sample."""
    threads = []
    lines, kernels = Lines(artefact), DeviceKernels()
    for thread in threads_in(kernels.watch((number, _plain(line)) for number, line in lines)):
        threads.append(thread)
        if len(threads) == MAX_THREADS:
            yield Problem(f"more than {MAX_THREADS} threads; the rest was left out", f"line={thread.line}")
            break
    if lines.problem is not None:
        yield lines.problem
    found = list(kernels.batches(artefact))
    if not threads and not found:
        yield Problem("no thread could be read", "line=1", fatal=True)
        return
    yield from found
    if threads:
        yield from stack_batches(artefact, threads)


INGESTER = Ingester("python_stacks_text", "python_stacks", sniff, rows)
