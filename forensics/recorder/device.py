"""Device time of a region by a pair of CUDA events, read when they are ready and never waited for."""

from __future__ import annotations

import sys
from typing import Any

from forensics.recorder import layout


class EventPair:
    """Two recorded events; torch is used only when the trainer has imported it and CUDA is initialised."""

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
