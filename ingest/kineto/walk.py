"""Events of a trace one after the other, whatever white space stands between and in them: slower than looking for needles."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from forensics.ingest.kineto.columns import Tally
from forensics.ingest.kineto.rows import Rows

LONGEST_EVENT = 1 << 20
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_NEXT = re.compile(r"\}[ \t\r\n]*,[ \t\r\n]*(?=\{)")
# What an error costs grows with its place in the text, so that events are read out of a small part of a block.
_PART = 1 << 15
_LONGEST_MARK = 1 << 12
_NEAR_END = 16  # a word or an escape that is cut is an error where it begins
_DEEP = 10_000  # what a text that is nested too deep counts for
_ERROR = 256  # what any error counts for at least
_MOST_REREAD = 8 << 20


class Walk:
    """Reads the list of events in blocks; behind a broken event it goes on at the next brace, comma and brace."""

    def __init__(self, rows: Rows, tally: Tally) -> None:
        self._rows = rows
        self._tally = tally
        self._reread = 0
        # Behind a broken event it may be a list in that event that ends.
        self._is_sure = True
        self.is_lost = False
        """In or behind a broken event, where the next one has not begun yet."""
        self.is_done = False

    def read(self, block: bytes, before: int, is_last: bool) -> int:
        """Keep the events of a block that begins between two of them; returns where the first that is cut begins."""
        text = block.decode("latin-1")
        part = _Part(text)
        at = len(text) if self.is_done else 0
        while not self.is_done:
            if self.is_lost:
                found = _NEXT.search(text, at)
                if found is None:
                    return len(text) if is_last else max(at, _left(text))
                at, self.is_lost = found.end(), False
            begin = _between(text, at)
            if begin == len(text):
                return begin
            if text[begin] == "]":
                found = None if self._is_sure else _NEXT.search(text, begin)
                self.is_done = found is None
                at = found.end() if found else len(text)
                continue
            event, after = part.event(begin) if text[begin] == "{" else (None, begin)
            if event is None and not is_last and after >= len(text) - _NEAR_END and len(text) - begin < LONGEST_EVENT:
                return at
            if event is not None and self._take(event, block[begin:after]):
                at, self._is_sure = after, self._is_sure or "ph" in event
                self._reread = max(0, self._reread - (after - begin))
                continue
            self._broken(before + begin)
            self.is_lost, self._is_sure, at = True, False, begin
            self._reread += max(_ERROR, after - begin)
            if self._reread > _MOST_REREAD:  # made to be read over and over
                self._tally.problem = "more broken events than are stepped over"
                self.is_done = True
        return at

    def _take(self, event: dict[str, Any], raw: bytes) -> bool:
        """Whether it is valid JSON; of what nobody wants that is not asked."""
        if self._rows.kind_of(event):
            try:
                self._rows.keep(orjson.loads(raw), raw)
            except orjson.JSONDecodeError:
                return False
        return True

    def _broken(self, place: int) -> None:
        self._tally.broken += 1
        self._tally.first_broken = place if self._tally.first_broken is None else self._tally.first_broken


class _Part:
    """A window of the text that moves on, and grows where an event is longer than it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._first = 0
        self._part = text[:_PART]
        self._decoder = json.JSONDecoder(strict=False)

    def event(self, begin: int) -> tuple[dict[str, Any] | None, int]:
        """The object from a brace on and its end; None with how far it was read where it is no JSON or is cut."""
        size = _PART
        while True:
            end = self._first + len(self._part)
            if begin < end:
                event, after = self._decoded(begin - self._first)
                after += self._first
                if event is not None or after < end - _NEAR_END or end == len(self._text):
                    return event, after
                size = max(_PART, 2 * len(self._part) if begin == self._first else 0)
            self._first, self._part = begin, self._text[begin : begin + size]

    def _decoded(self, begin: int) -> tuple[dict[str, Any] | None, int]:
        try:
            return self._decoder.raw_decode(self._part, begin)
        except json.JSONDecodeError as error:
            return None, len(self._part) if error.msg.startswith("Unterminated") else error.pos
        except RecursionError:
            return None, min(begin + _DEEP, len(self._part) - _NEAR_END - 1)
        except ValueError:  # more digits than an int may have
            return None, begin


def _between(text: str, at: int) -> int:
    found = _BETWEEN.match(text, at)
    return found.end() if found else at


def _left(text: str) -> int:
    """Where what may be the begin of a mark between two events begins, at the end of a block."""
    last = text[-_LONGEST_MARK:]
    return len(text) - len(last) + len(last.rstrip(" \t\r\n,").removesuffix("}"))
