"""What the trainer enters and leaves: small objects whose few statements cannot fail, or that swallow their own failure."""

from __future__ import annotations

import time
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING

from forensics.recorder.device import EventPair

if TYPE_CHECKING:
    from forensics.recorder.recorder import Recorder

MOST_SPANS = 4096
"""Stages and probes kept of one step; a trainer that never ends its step must not fill the memory."""
_clock = time.monotonic_ns


class StepContext:
    """One optimizer step."""

    __slots__ = ("_begin", "_recorder", "number")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._begin = 0
        self.number: int | None = None

    def __enter__(self) -> None:
        try:
            self._begin = self._recorder._begin_step()
        except Exception:
            self._recorder._spans = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._recorder._end_step(self.number, self._begin, kind is not None)
        except Exception:
            self._recorder._spans = None


class StageContext:
    """One ordered stage. Stages do not nest: the time of an inner one already is in the outer one."""

    __slots__ = ("_begin", "_index", "_recorder")

    def __init__(self, recorder: Recorder, index: int) -> None:
        self._recorder = recorder
        self._index = index
        self._begin = 0

    def __enter__(self) -> None:
        recorder = self._recorder
        if recorder._is_open or get_ident() != recorder._owner:
            recorder._depth += 1
            recorder._counts.nested += 1
            return
        recorder._is_open = True
        self._begin = _clock()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        end = _clock()
        recorder = self._recorder
        if recorder._depth:
            recorder._depth -= 1
            return
        recorder._is_open = False
        spans = recorder._spans
        if spans is None:
            recorder._counts.outside += 1
        elif len(spans) < MOST_SPANS:
            spans.append((self._index, self._begin, end, None))


class ProbeContext:
    """A measurement beside the account."""

    __slots__ = ("_begin", "_index", "_recorder")

    def __init__(self, recorder: Recorder, index: int) -> None:
        self._recorder = recorder
        self._index = index
        self._begin = 0

    def __enter__(self) -> None:
        self._begin = _clock()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        spans = self._recorder._spans
        if spans is not None and len(spans) < MOST_SPANS:
            spans.append((self._index, self._begin, _clock(), None))


class DeviceTimeContext:
    """Device time of a region, in a sample of the steps."""

    __slots__ = ("_begin", "_index", "_pair", "_recorder")

    def __init__(self, recorder: Recorder, index: int) -> None:
        self._recorder = recorder
        self._index = index
        self._begin = 0
        self._pair: EventPair | None = None

    def __enter__(self) -> None:
        try:
            pair = EventPair() if self._recorder._samples_device() else None
            self._begin = _clock()
            self._pair = pair if pair is not None and self._recorder._counts.has_timed(pair.begin()) else None
        except Exception:
            self._pair = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            pair, spans = self._pair, self._recorder._spans
            if pair is None or spans is None or kind is not None:
                return
            pair.end()
            spans.append((self._index, self._begin, _clock(), pair))
        except Exception:
            self._pair = None


class PrefetchContext:
    """A wait that belongs to the next step."""

    __slots__ = ("_begin", "_recorder")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._begin = 0

    def __enter__(self) -> None:
        self._begin = _clock()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._recorder._wait_ahead(self._begin, _clock())
