"""Turn Ctrl-C, SIGTERM and SIGHUP into a request to finish early; a second one means at once."""

from __future__ import annotations

import os
import signal
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While it is entered, the first signal sets `requested` and makes `wake` readable; the second raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.requested = False
        self.wake, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def __enter__(self) -> Interrupts:
        self._previous = [(number, signal.signal(number, self._handle)) for number in _SIGNALS]
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous:
            signal.signal(number, handler)
        os.close(self.wake)
        os.close(self._write)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        os.write(self._write, b"!")
