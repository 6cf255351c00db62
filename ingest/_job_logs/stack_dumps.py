"""Stacks that a watchdog of the job, or somebody beside it, had py-spy write into the log.

A dump counts where its process says which rank it is, and where it is whole: lines of other processes may stand in between, and
what was cut shows a thread at a place where it is not.
Upstream: `pyspy_dump_schedulers` of sglang/srt/utils, py-spy dump.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import replace

from forensics.bundle.artefact import Artefact
from forensics.ingest._job_logs import timed_dumps
from forensics.ingest._job_logs.line_origin import Origin
from forensics.ingest._shared.frames import is_entry
from forensics.ingest._shared.process_titles import dumped, world_ranks
from forensics.ingest._shared.stack_frames import frame
from forensics.ingest._shared.stack_rows import stack_batches
from forensics.ingest._shared.stack_text import PROCESS, header, threads_in
from forensics.ingest.interface import Batch

SERVER_START = "server_args=ServerArgs("
"""What SGLang prints when it begins."""
WORDS = ("Pyspy dump for PID ", "py-spy dump ", SERVER_START, *timed_dumps.WORDS)
# The command of somebody who says whose process it is.
_COMMAND = re.compile(
    r".{0,80}?\bpy-spy dump .{0,80}?(?:-p|--pid)[ =](\d{1,9})\b[^#\n]{0,80}#+ *rank[ :#=]{0,2}(\d{1,7})\s*", re.I
)
EXPRESSIONS = {"Process 0": r"Process \d{1,9}: \S"}
_MOST_LINES = 200_000
# Lines above the first thread that are kept, and how far below them it stands at most.
_MOST_ABOVE, _LONGEST_HEAD = 4, 16
_LONGEST_GAP = 64


class StackDumps:
    """Collects the lines of dumps over a file."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, str]] = []
        self._above: deque[tuple[int, str]] = deque(maxlen=_MOST_ABOVE)
        self._stated: dict[int, int] = {}
        self._open_until = 0
        self._timed = timed_dumps.TimedDumps()

    def is_open(self, number: int) -> bool:
        """Whether a dump has begun that may go on."""
        return number <= self._open_until or self._timed.is_open(number)

    def feed(self, number: int, line: str, origin: Origin) -> None:
        """Take one line; what a server dumped before it was started again is of another job."""
        if SERVER_START in line:
            self.forget()
        self._timed.feed(number, origin)
        text = origin.bare[origin.text :]
        begins = PROCESS.match(text)
        if "py-spy dump " in line and (asked := _COMMAND.fullmatch(line)) and len(self._stated) < _MOST_LINES:
            self._stated[int(asked[1])] = int(asked[2])
            self._above.append((number, f"Process {asked[1]}: "))
            self._open_until = max(self._open_until, number + _LONGEST_HEAD)
        elif begins is not None or dumped(line) is not None:
            self._above.append((number, text if begins else line))
            self._open_until = max(self._open_until, number + _LONGEST_HEAD)
            if begins is not None and origin.rank is not None and len(self._stated) < _MOST_LINES:
                self._stated[int(begins[1])] = origin.rank
        elif number <= self._open_until and len(self._lines) < _MOST_LINES and (frame(text) or header(text, number, None)):
            self._lines += [*self._above, (number, text)]
            self._above.clear()
            self._open_until = number + _LONGEST_GAP

    def forget(self) -> None:
        """Leave out what was read so far."""
        self._lines, self._stated = [], {}

    def batches(
        self, artefact: Artefact, begin: int, own: int | None, labels: Mapping[str, int], resumed: timed_dumps.Resumed
    ) -> Iterator[Batch]:
        """Rows of the dumps from line `begin` on whose rank is known; faulthandler's, in a log of one process, for `own`.

        `labels` are ranks by what stands in front of their lines, `resumed` says where steps go on below a line.
        """
        yield from self._timed.batches(artefact, own, labels, resumed)
        threads = list(threads_in(each for each in self._lines if each[0] >= begin))
        whole = {(each.pid, each.dump) for each in threads if each.number == each.pid and is_entry(each.frames)}
        places = {each.pid: each.place for each in threads if each.pid is not None and each.place is not None}
        ranks = {**world_ranks(places), **self._stated}
        shared = {rank for rank, times in Counter(ranks.values()).items() if times > 1}
        kept = [
            replace(each, rank=ranks[each.pid], place=None)
            for each in threads
            if each.pid in ranks and ranks[each.pid] not in shared and (each.pid, each.dump) in whole
        ]
        if kept:
            yield from stack_batches(artefact, kept)
