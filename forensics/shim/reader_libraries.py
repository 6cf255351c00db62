"""Whether the native readers of this installation are in use: one of another release is passed over without a word."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from forensics.ingest.flight_recorder import native as dumps
from forensics.ingest.kineto import native as traces
from forensics.native import library_path, read_clocks
from forensics.shim.doctor import Check, Health

_READERS: tuple[tuple[str, str, Callable[[], bool], str], ...] = (
    ("reader of dumps", "forensics_pickle", dumps.is_in_use, "Python reads dumps instead, which takes longer"),
    ("reader of traces", "forensics_trace", traces.is_in_use, "Python reads traces instead, which takes longer"),
    ("reader of clocks", "forensics_clock", lambda: read_clocks(1).native, "clocks are read with a wider bound"),
)


def library_checks() -> Iterator[Check]:
    """One check of each native reader, with what is lost without it."""
    for name, library, is_in_use, loss in _READERS:
        path = library_path(library)
        if path is None:
            words = f"this installation has no lib{library}.so: {loss}"
            yield Check(name, Health.WARN, words, "install a wheel, or build with a C compiler")
        elif is_in_use():
            yield Check(name, Health.OK, str(path))
        else:
            words = f"{path} is of another release or cannot be loaded, and is passed over: {loss}"
            yield Check(name, Health.WARN, words, "install forensics anew: pip install --force-reinstall --no-deps")
