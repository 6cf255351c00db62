"""Stacks that a timer of faulthandler wrote into the log of a rank, while the process did not get on.

`faulthandler.dump_traceback_later` of Python prints `Timeout (0:10:00)!` above all threads. Dumps with nothing but dumps
between them are of one standstill: what was dumped before the process wrote anything else is left out, and so is all above
further steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

from forensics.bundle.artefact import Artefact
from forensics.ingest._job_logs.line_origin import Origin
from forensics.ingest._shared.frames import is_entry
from forensics.ingest._shared.stack_frames import frame
from forensics.ingest._shared.stack_text import Thread, header, stack_batches, threads_in, timer_in
from forensics.ingest.interface import Batch

WORDS = ("Timeout (",)
_MOST_LINES = 200_000
_LONGEST_GAP = 2


class TimedDumps:
    """Collects the lines of dumps over a file, by the rank that stands in front of them."""

    def __init__(self) -> None:
        self._lines: dict[int | None, list[tuple[int, str]]] = defaultdict(list)
        self._last = 0
        self._is_open = False

    def is_open(self, number: int) -> bool:
        """Whether a dump has begun that goes on."""
        return self._is_open and number - self._last <= _LONGEST_GAP

    def feed(self, number: int, origin: Origin) -> None:
        """Take one line."""
        text = origin.bare[origin.text :]
        if timer_in(text):
            if number - self._last > _LONGEST_GAP:
                self._lines.clear()
            self._is_open = True
        elif not self.is_open(number) or not (frame(text) or header(text, number, None)):
            self._is_open = self.is_open(number) and not text.strip()
            return
        self._last = number
        if len(self._lines[origin.rank]) < _MOST_LINES:
            self._lines[origin.rank].append((number, text))

    def batches(self, artefact: Artefact, own: int | None, resumed: Callable[[int], bool]) -> Iterator[Batch]:
        """Rows of whole dumps; `own` is the rank of the file, `resumed` says whether steps go on below a line."""
        if not self._lines or resumed(self._last):
            return
        kept: list[Thread] = []
        for said, lines in self._lines.items():
            rank = own if said is None else said
            threads = list(threads_in(lines)) if rank is not None else []
            whole = {each.dump for each in threads if is_entry(each.frames)}
            kept += [replace(each, rank=rank) for each in threads if each.dump in whole]
        if kept:
            yield from stack_batches(artefact, kept)
