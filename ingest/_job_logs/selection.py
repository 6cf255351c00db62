"""Lines of a log that some reader may understand: found in blocks of bytes, so that the others never become text.

A log of training is mostly progress. One search for a hundred words goes over a block; a reader that waits for the rest of
something (a traceback, a table) is given every line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from forensics.bundle.artefact import Artefact
from forensics.bundle.streams import chunks
from forensics.ingest._job_logs.tracebacks import TRACEBACK
from forensics.ingest._job_logs.word_places import Places, Words
from forensics.ingest._job_logs.wrapped import unwrapped
from forensics.ingest.interface import Problem

BLOCK_BYTES = 1 << 20
_TRACEBACK = TRACEBACK.encode()
MAX_LINE_BYTES = 1 << 16
_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_CONTROL = bytes([*range(9), *range(11, 32), 127])


class Wanting(Protocol):
    """What is read: which lines begin something, and whether every line is wanted until it has ended."""

    @property
    def trigger(self) -> Words | None:
        """Found in each line that may mean something; None for every line."""

    def is_open(self, number: int) -> bool:
        """Whether something has begun that any line may go on with."""

    def survey(self, number: int, block: bytes) -> None:
        """Take whole lines from this one on, whether any of them is wanted or not."""


@dataclass(slots=True)
class SelectedLines:
    """Lines from 1 without terminal escapes, of those that `reader` wants.

    A carriage return starts a new part with the same number; a part is cut at `MAX_LINE_BYTES`. `problem` says why the content
    could not be read to its end.
    """

    artefact: Artefact
    reader: Wanting
    problem: Problem | None = None
    _number: int = 1

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """(number, line) in the order of the file."""
        try:
            with self.artefact.open() as stream:
                for block in _blocks(stream):
                    # What somebody pasted is small.
                    is_pasted = self.artefact.stored_bytes <= BLOCK_BYTES
                    yield from self._of_block(unwrapped(block) if is_pasted else block)
        except OSError as error:
            self.problem = Problem(f"cannot be read any further: {error}", f"line={self._number}", fatal=True)

    def _of_block(self, block: bytes) -> Iterator[tuple[int, str]]:
        """A block holds whole lines."""
        self.reader.survey(self._number, block)
        place, size, has_parts = 0, len(block), b"\r" in block
        newline = -1
        sought, places = None, None
        while place < size:
            wanted = self.reader.trigger
            if wanted is not None and not self.reader.is_open(self._number):
                if wanted is not sought or places is None:
                    sought, places = wanted, Places(wanted, block)
                hit = places.first(place)
                if hit is None:
                    break
                start = _start(block, place, hit, has_parts)
                # What logging prints of an exception stands below the line that says whose it is.
                if start > place and block.startswith(_TRACEBACK, start):
                    start = _start(block, place, start - 1, has_parts)
                self._number += block.count(b"\n", place, start)
                place = start
            if newline < place:
                newline = block.find(b"\n", place)
                newline = size if newline < 0 else newline
            part = block.find(b"\r", place, newline) if has_parts else -1
            end = newline if part < 0 else part
            yield self._number, block[place : min(end, place + MAX_LINE_BYTES)].decode("utf-8", "replace")
            self._number += block[end : end + 1] == b"\n"
            place = end + 1
        self._number += block.count(b"\n", place)


def _start(block: bytes, place: int, hit: int, has_parts: bool) -> int:
    start = block.rfind(b"\n", place, hit)
    return max(place, start + 1, block.rfind(b"\r", max(start, place), hit) + 1 if has_parts else 0)


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Whole lines, about `BLOCK_BYTES` of them at once; of a line that is longer, the beginning and its end."""
    rest = b""
    for chunk in chunks(stream, BLOCK_BYTES):
        whole, newline, tail = chunk.rpartition(b"\n")
        if newline:
            yield _clean(rest + whole + newline)
            rest = tail
        else:
            rest += chunk
        if len(rest) > BLOCK_BYTES:
            # A bar that redraws itself for hours: the parts that are finished.
            done, _, rest = rest.rpartition(b"\r")
            yield _clean(done + b"\r")
            rest = rest[:MAX_LINE_BYTES]
    if rest:
        yield _clean(rest)


def _clean(block: bytes) -> bytes:
    """Without escapes and control characters; the end of a line is one character."""
    if len(block.translate(None, _CONTROL)) == len(block):
        return block
    return _ESCAPES.sub(b"", block.replace(b"\r\n", b"\n"))
