"""What a node says on its standard output while it collects: its clock, then its bundle between words of this one exchange.

Whatever else is printed there (a banner, a warning of a module system) stands in front of it and is not looked at. Each line of
the exchange carries a number that the asking side drew, so that no other program can be taken for the collector.

    forensics-clock NUMBER REALTIME_NS              at once, and again as the answer to a line on standard input
    forensics-bundle NUMBER VERSION SIZE SHA256 EXIT-CODE    then SIZE bytes
    forensics-failed NUMBER VERSION EXIT-CODE WORDS
"""

from __future__ import annotations

import hashlib
import os
import re
import select
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import forensics

MOST_RUBBISH = 1 << 20
"""Bytes that may stand in front of a bundle: no banner is longer."""

MOST_BUNDLE = 64 << 30
_LONGEST_LINE = 4096
_ANSWER_S = 1.0
_VERSION, _NUMBER = r"([0-9A-Za-z.+!_-]{1,64})", r"(\d{1,19})"
_CLOCK = re.compile(rf"{_NUMBER}")
_BUNDLE = re.compile(rf"{_VERSION} {_NUMBER} ([0-9a-f]{{64}}) (\d{{1,3}})")
_FAILED = re.compile(rf"{_VERSION} (\d{{1,3}}) (.*)")


def greet(nonce: str) -> None:
    """Tell the clock of this host, and tell it again when the asking side says that it has heard it."""
    _say(f"forensics-clock {nonce} {time.time_ns()}")
    try:
        ready, _, _ = select.select([0], [], [], _ANSWER_S)
        heard = bool(ready) and os.read(0, 64).strip() == nonce.encode()
    except OSError:
        heard = False
    if heard:
        _say(f"forensics-clock {nonce} {time.time_ns()}")


def send_bundle(nonce: str, path: Path, code: int) -> None:
    """Send a finished bundle; OSError when nobody listens any more."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
        size = stream.tell()
        _say(f"forensics-bundle {nonce} {forensics.__version__} {size} {digest.hexdigest()} {code}")
        stream.seek(0)
        while size > 0 and (chunk := stream.read(min(1 << 20, size))):
            sys.stdout.buffer.write(chunk)
            size -= len(chunk)
    sys.stdout.buffer.flush()


def send_failure(nonce: str, code: int, words: str) -> None:
    """Say why there is no bundle."""
    line = " ".join(words.split())[: _LONGEST_LINE // 2]
    _say(f"forensics-failed {nonce} {forensics.__version__} {code} {line}")


def _say(line: str) -> None:
    sys.stdout.buffer.write(f"\n{line}\n".encode())
    sys.stdout.buffer.flush()


class NoExchangeError(Exception):
    """What the node prints is not what a collector sends; the message says what it is instead."""


@dataclass(slots=True)
class Received:
    """What came so far. `clocks` are pairs (realtime of the node, realtime here when it was heard), ns."""

    clocks: list[tuple[int, int]] = field(default_factory=list)
    version: str | None = None
    size: int | None = None
    sha256: str | None = None
    code: int | None = None
    failure: str | None = None
    stored: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether all bytes that were promised came."""
        return self.size is not None and self.stored == self.size


class FrameReader:
    """Reads an exchange piece by piece; the bytes of the bundle go into `sink`.

    Raises NoExchangeError for too much of anything else, and for a bundle that is larger than `room` bytes.
    """

    def __init__(self, nonce: str, sink: BinaryIO, room: int = MOST_BUNDLE) -> None:
        self.received = Received()
        self.digest = hashlib.sha256()
        self._nonce, self._sink, self._room = nonce, sink, min(room, MOST_BUNDLE)
        self._line = b""
        self._rubbish = 0

    def feed(self, data: bytes, now_ns: int) -> None:
        """Take what was read at `now_ns` (CLOCK_REALTIME)."""
        while data:
            if self.received.size is not None:
                return self._store(data)
            line, newline, rest = data.partition(b"\n")
            self._line = (self._line + line)[: _LONGEST_LINE + 1]
            if newline:
                self._read(self._line, now_ns)
                self._line = b""
            self._rubbish += len(data) - len(rest)
            if self._rubbish > MOST_RUBBISH:
                raise NoExchangeError(f"it printed {self._rubbish} bytes that are no bundle")
            data = rest
        return None

    @property
    def is_sound(self) -> bool:
        """Whether the bytes are those that were sent."""
        return self.received.is_whole and self.digest.hexdigest() == self.received.sha256

    def _store(self, data: bytes) -> None:
        kept = data[: (self.received.size or 0) - self.received.stored]
        self._sink.write(kept)
        self.digest.update(kept)
        self.received.stored += len(kept)

    def _read(self, line: bytes, now_ns: int) -> None:
        """One line; those that are not of this exchange are passed over."""
        words = line.decode("utf-8", "replace").rstrip("\r").split(" ", 2)
        if len(words) < 3 or words[1] != self._nonce:
            return
        kinds: dict[str, Callable[[str, int], None]] = {
            "forensics-clock": self._clock,
            "forensics-bundle": self._bundle,
            "forensics-failed": self._failed,
        }
        if words[0] in kinds:
            kinds[words[0]](words[2], now_ns)

    def _clock(self, text: str, now_ns: int) -> None:
        if (match := _CLOCK.fullmatch(text)) and len(self.received.clocks) < 2:
            self.received.clocks.append((int(match[1]), now_ns))

    def _bundle(self, text: str, _now_ns: int) -> None:
        if (match := _BUNDLE.fullmatch(text)) is None:
            raise NoExchangeError("its announcement of a bundle is of another form")
        if int(match[2]) > self._room:
            raise NoExchangeError(f"its bundle has {int(match[2])} bytes, for which there is no room here")
        self.received.version, self.received.size = match[1], int(match[2])
        self.received.sha256, self.received.code = match[3], int(match[4])

    def _failed(self, text: str, _now_ns: int) -> None:
        if match := _FAILED.fullmatch(text):
            self.received.version, self.received.code, self.received.failure = match[1], int(match[2]), match[3]
