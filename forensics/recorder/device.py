"""Device time of a region by a pair of CUDA events, read when they are ready and never waited for."""

from __future__ import annotations

import sys
from typing import Any


class EventPair:
    """Two recorded events; torch is used only when the trainer has imported it and CUDA is initialised."""

    __slots__ = ("_begin", "_end")

    def __init__(self) -> None:
        self._begin: Any = None
        self._end: Any = None

    def begin(self) -> bool:
        """Record the first event; False when there is no device to ask."""
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized() or torch.cuda.is_current_stream_capturing():
            return False
        self._begin = torch.cuda.Event(enable_timing=True)
        self._begin.record()
        return True

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
