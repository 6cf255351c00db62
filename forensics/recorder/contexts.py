"""What the trainer enters and leaves: small objects whose few statements cannot fail, or that swallow their own failure."""

from __future__ import annotations

import sys
import time
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any

from forensics.recorder import layout

if TYPE_CHECKING:
    from forensics.recorder.recorder import Recorder

MOST_SPANS = 4096
"""Stages and probes kept of one step; a trainer that never ends its step must not fill the memory."""
_clock = time.monotonic_ns


class EventPair:
    """Two recorded events of CUDA, read when they are ready and never waited for: the device time of a region.

    Torch is used only when the trainer has imported it and CUDA is initialised.
    """

    __slots__ = ("_begin", "_end")

    def __init__(self) -> None:
        self._begin: Any = None
        self._end: Any = None

    def begin(self) -> str:
        """Record the first event, and say so, or why there is no device to ask (words of `layout`)."""
        torch = sys.modules.get("torch")
        if torch is None:
            return layout.NO_TORCH
        if not torch.cuda.is_initialized():
            return layout.NO_CUDA
        if torch.cuda.is_current_stream_capturing():
            return layout.CAPTURING
        self._begin = torch.cuda.Event(enable_timing=True)
        self._begin.record()
        return layout.TIMED

    def end(self) -> None:
        """Record the second event."""
        torch = sys.modules["torch"]
        self._end = torch.cuda.Event(enable_timing=True)
        self._end.record()

    def elapsed_ns(self) -> int | None:
        """Nanoseconds between them, None while the device has not passed the second."""
        try:
            if self._end is None or not self._end.query():
                return None
            return int(1e6 * self._begin.elapsed_time(self._end))
        except Exception:  # a device in trouble is the trainer's to report
            return None


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


class StageContext(ProbeContext):
    """One ordered stage. Stages do not nest: the time of an inner one already is in the outer one."""

    __slots__ = ()

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


class DeviceTimeContext(ProbeContext):
    """Device time of a region, in a sample of the steps."""

    __slots__ = ("_pair",)

    def __init__(self, recorder: Recorder, index: int) -> None:
        super().__init__(recorder, index)
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
