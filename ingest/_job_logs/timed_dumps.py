"""Stacks that faulthandler wrote into the log of a rank: by a timer, while the process did not get on, or when it was aborted.

`faulthandler.dump_traceback_later` of Python prints `Timeout (0:10:00)!` above all threads. Dumps with nothing but dumps
between them are of one standstill: what was dumped before the process wrote anything else is left out, and so is all above
further steps. An abort is from outside (`kill -ABRT`, a launcher that waited long enough) where the process reported no error
before it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from forensics.bundle.artefact import Artefact
from forensics.ingest._job_logs.line_origin import Origin
from forensics.ingest._shared.frames import is_entry
from forensics.ingest._shared.stack_frames import frame
from forensics.ingest._shared.stack_rows import stack_batches
from forensics.ingest._shared.stack_text import Thread, header, threads_in, timer_in
from forensics.ingest.interface import Batch

WORDS = ("Timeout (", "Fatal Python error: Aborted")
Resumed = Callable[[Sequence[int], Sequence[int]], int | None]
"""From which line on steps are trained below the last of these lines (ends of processes, stalls); None where none are."""
_ABORTED = re.compile(r"Fatal Python error: Aborted\s*")
_ERROR = re.compile(
    r"Traceback \(most|\[[EF]\d{3,4} |terminate called|\bwhat\(\): |Assertion .{0,200} failed|"
    r"double free|corrupt|free\(\)|Check failed:"
)
_MOST_LINES = 200_000
_LONGEST_GAP = 2


class TimedDumps:
    """Collects the lines of dumps over a file, by the rank that stands in front of them."""

    def __init__(self) -> None:
        self._lines: dict[tuple[int | None, str | None], list[tuple[int, str]]] = defaultdict(list)
        self._failed: set[tuple[int | None, str | None]] = set()
        self._last = 0
        self._is_open = False

    def is_open(self, number: int) -> bool:
        """Whether a dump has begun that goes on."""
        return self._is_open and number - self._last <= _LONGEST_GAP

    def feed(self, number: int, origin: Origin) -> None:
        """Take one line."""
        text, whose = origin.bare[origin.text :], (origin.rank, origin.label)
        if timer_in(text):
            if number - self._last > _LONGEST_GAP:
                self._lines.clear()
            self._is_open = True
        elif whose not in self._failed and _ABORTED.fullmatch(text):
            self._lines.pop(whose, None)
            self._is_open = True
        elif not self.is_open(number) or not (frame(text) or header(text, number, None)):
            self._is_open = self.is_open(number) and not text.strip()
            if _ERROR.search(text):
                self._failed.add(whose)
            return
        self._last = number
        if len(self._lines[whose]) < _MOST_LINES:
            self._lines[whose].append((number, text))

    def batches(self, artefact: Artefact, own: int | None, ranks: Mapping[str, int], resumed: Resumed) -> Iterator[Batch]:
        """Rows of whole dumps.

        `own` is the rank of the file, `ranks` are those of labels, `resumed` says where steps go on below a line.
        """
        if not self._lines or resumed((self._last,), ()) is not None:
            return
        kept: list[Thread] = []
        for (said, label), lines in self._lines.items():
            rank = said if said is not None else own if label is None else ranks.get(label)
            # The rank of a file that is of one process may be known only beside its neighbours.
            is_of_file = said is None and label is None and len(self._lines) == 1
            threads = list(threads_in(lines)) if rank is not None or is_of_file else []
            whole = {each.dump for each in threads if is_entry(each.frames)}
            kept += [replace(each, rank=rank) for each in threads if each.dump in whole]
        if kept:
            yield from stack_batches(artefact, kept)
