"""The native libraries shipped with the package: where they lie, and the one that reads the clocks of a host.

The libraries are built from `native/` and installed to `forensics/_native/`. They are optional: an installation without a
compiler has none, and `read_clocks` then reads the same clocks from Python, with a wider bound.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import forensics

_LAYOUT = 1
_COUNTERS = {1: "tsc", 2: "cntvct"}


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The clocks of this host, read together (ns); no clock was read further than `bound_ns` from another.

    `counter` is the CPU counter in its own ticks, `counter_kind` is `tsc` or `cntvct`; both are None where it cannot be
    read. `native` shows whether the library read them or Python did.
    """

    realtime_ns: int
    monotonic_ns: int
    boottime_ns: int
    bound_ns: int
    counter: int | None
    counter_kind: str | None
    attempts: int
    native: bool


class _Reading(ctypes.Structure):
    """`struct forensics_clock_reading` of native/include/forensics/clock.h, layout 1."""

    _fields_ = (
        ("realtime_ns", ctypes.c_int64),
        ("monotonic_ns", ctypes.c_int64),
        ("boottime_ns", ctypes.c_int64),
        ("counter", ctypes.c_uint64),
        ("bound_ns", ctypes.c_int64),
        ("attempts", ctypes.c_uint32),
        ("counter_kind", ctypes.c_uint16),
        ("layout", ctypes.c_uint16),
    )


def library_path(name: str) -> Path | None:
    """Path of the shipped library `lib<name>.so`, or None when this installation has none.

    The folder in FORENSICS_NATIVE_DIR, when set, is the only one looked at.
    """
    for folder in _folders():
        candidate = folder / f"lib{name}.so"
        if candidate.is_file():
            return candidate
    return None


def read_clocks(attempts: int = 16) -> ClockReading:
    """Read the clocks of this host together, keeping the narrowest of `attempts` readings."""
    if attempts < 1:
        raise ValueError(f"attempts must be at least 1, not {attempts}")
    return _read_native(attempts) or _read_python(attempts)


def _folders() -> Iterator[Path]:
    override = os.environ.get("FORENSICS_NATIVE_DIR")
    if override:
        yield Path(override)
        return
    # An editable installation has two folders: the source tree, and site-packages where the libraries are.
    for entry in forensics.__path__:
        yield Path(entry) / "_native"


def _read_native(attempts: int) -> ClockReading | None:
    """The library's reading; None when there is no library, it cannot be loaded, or it has another layout."""
    path = library_path("forensics_clock")
    if path is None:
        return None
    raw = _Reading()
    try:
        status = ctypes.CDLL(str(path)).forensics_clock_read(ctypes.byref(raw), ctypes.c_int(attempts))
    except (OSError, AttributeError):
        return None
    if status != 0 or raw.layout != _LAYOUT:
        return None
    kind = _COUNTERS.get(raw.counter_kind)
    return ClockReading(
        realtime_ns=raw.realtime_ns,
        monotonic_ns=raw.monotonic_ns,
        boottime_ns=raw.boottime_ns,
        bound_ns=raw.bound_ns,
        counter=raw.counter if kind else None,
        counter_kind=kind,
        attempts=raw.attempts,
        native=True,
    )


def _read_python(attempts: int) -> ClockReading:
    return min((_read_once(attempts) for _ in range(attempts)), key=lambda reading: reading.bound_ns)


def _read_once(attempts: int) -> ClockReading:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    realtime = time.clock_gettime_ns(time.CLOCK_REALTIME)
    boottime = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return ClockReading(
        realtime_ns=realtime,
        monotonic_ns=before + (after - before) // 2,
        boottime_ns=boottime,
        bound_ns=max(after - before, 1),
        counter=None,
        counter_kind=None,
        attempts=attempts,
        native=False,
    )
