"""The thread that brings finished steps to the file: the trainer never waits for it, nor for the disk."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Protocol

from forensics.recorder import layout

INTERVAL_S = 0.5
"""A killed process loses at most this much."""
MAX_WAITING = 4096
"""Steps that may wait for a disk that does not answer; later ones are dropped and counted."""


class Sample(Protocol):
    """A device time that may become known later."""

    def elapsed_ns(self) -> int | None:
        """The time in ns, None while it is not known; never waits."""


Span = tuple[int, int, int, Sample | None]
"""One stage of a step: name, begin and end (ns, monotonic), device time. Plain, because the trainer makes them."""
Step = tuple[int, int, int, list[Span], int]
"""One finished step: number, begin and wall time (ns), spans, flags."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose file it is; -1 where it is not known."""

    rank: int
    world_size: int
    local_rank: int
    texts: dict[str, str]


@dataclass(slots=True)
class Counts:
    """What was lost, the names in use, and whether device times were taken (a word of `layout`)."""

    dropped: int = 0
    nested: int = 0
    outside: int = 0
    beyond: int = 0
    names: list[tuple[str, int]] = field(default_factory=list)
    device: str = ""

    def has_timed(self, word: str) -> bool:
        """Note how asking the device went; one time that was taken is not forgotten."""
        if self.device != layout.TIMED:
            self.device = word
        return word == layout.TIMED


class Writer:
    """Writes steps into a ring of `slots` slots; on the first error it stops writing, and the trainer goes on."""

    def __init__(self, path: Path, origin: Origin, counts: Counts, slots: int, spans: int) -> None:
        self.waiting: deque[Step] = deque()
        self.error: str | None = None
        self._path, self._origin, self._counts = path, origin, counts
        self._slots, self._spans = max(slots, 1), max(min(spans, 4096), 1)
        self._file = -1
        self._written = 0
        self._pending: deque[tuple[int, int, Sample]] = deque(maxlen=256)
        self._clocks = (time.time_ns(), time.monotonic_ns())
        self._stop = Event()
        self._thread = Thread(target=self._run, name="forensics-recorder", daemon=True)
        self._thread.start()

    def close(self, limit_s: float) -> None:
        """Ask for the rest to be written, and wait for it no longer than `limit_s`."""
        self._stop.set()
        self._thread.join(limit_s)

    def _run(self) -> None:
        try:
            self._open()
            while not self._stop.wait(INTERVAL_S):
                self._flush()
            self._flush()
            os.close(self._file)
        except Exception as error:  # whatever happens here is not the trainer's trouble
            self.error = f"{type(error).__name__}: {error}"
            self.waiting.clear()

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists():
            self._path.replace(self._path.with_suffix(f"{self._path.suffix}.previous"))
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self._write_names()

    def _flush(self) -> None:
        while self.waiting:
            self._write_step(self.waiting.popleft())
        self._poll()
        self._write_names()

    def _write_step(self, step: Step) -> None:
        """One slot; a name that comes again in a step gets the next substep."""
        place = layout.SLOTS_OFFSET + (self._written % self._slots) * layout.slot_bytes(self._spans)
        self._written += 1
        number, begin, wall, everything, flags = step
        spans = everything[: self._spans]
        lost = len(everything) - len(spans)
        self._counts.beyond += lost
        seen: dict[int, int] = {}
        parts = []
        for index, (name, start, end, sample) in enumerate(spans):
            substep = seen[name] = seen.get(name, -1) + 1
            asked = layout.SPAN_DEVICE_ASKED if sample else 0
            parts.append(layout.SPAN.pack(name, substep, asked, start - begin, end - start, -1))
            if sample:
                self._pending.append((place + layout.STEP.size + index * layout.SPAN.size, self._written, sample))
        flags |= layout.STEP_OVERFLOWED if lost else 0
        repeats = max(seen.values(), default=0) + 1
        parts.insert(0, layout.STEP.pack(self._written, number, begin, wall, -1, len(spans), flags, repeats))
        parts.append(bytes((self._spans - len(spans)) * layout.SPAN.size) + layout.TAIL.pack(self._written))
        os.pwrite(self._file, b"".join(parts), place)

    def _poll(self) -> None:
        """Device times that are known by now go into their slot, unless the ring has come round to it."""
        for _ in range(len(self._pending)):
            place, serial, sample = self._pending.popleft()
            if serial + self._slots <= self._written:
                continue
            elapsed = sample.elapsed_ns()
            if elapsed is None:
                self._pending.append((place, serial, sample))
                continue
            os.pwrite(self._file, (layout.SPAN_DEVICE_ASKED | layout.SPAN_DEVICE_READY).to_bytes(4, "little"), place + 4)
            os.pwrite(self._file, elapsed.to_bytes(8, "little", signed=True), place + 24)

    def _write_names(self) -> None:
        origin, counts = self._origin, self._counts
        texts = origin.texts | ({"device": counts.device} if counts.device else {})
        text = json.dumps(texts).encode()[: layout.TEXT_BYTES]
        names = list(counts.names)
        header = layout.HEADER.pack(
            *(layout.MAGIC, layout.VERSION, 0, layout.NAMES_OFFSET, layout.SLOTS_OFFSET),
            *(layout.slot_bytes(self._spans), self._slots, origin.rank, origin.world_size, origin.local_rank, os.getpid()),
            *(len(text), *self._clocks, self._written, counts.dropped),
            *(counts.nested, counts.outside, counts.beyond, len(names)),
        )
        table = b"".join(layout.NAME.pack(flags, len(name.encode()), name.encode()) for name, flags in names)
        block = header.ljust(layout.HEADER_BYTES, b"\0") + text.ljust(layout.TEXT_BYTES, b"\0")
        os.pwrite(self._file, (block + table).ljust(layout.SLOTS_OFFSET, b"\0"), 0)
