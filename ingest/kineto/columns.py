"""Events of a trace as columns: what both readers of trace files give (native/include/forensics/trace.h, layout 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
ANNOTATION, DEVICE_ANNOTATION, KERNEL, COPY, LAUNCH, GRADIENT, CALL, UPDATE, OPERATOR = range(1, 10)


@dataclass(slots=True)
class Tally:
    """What was met on the way: bytes, events that are no JSON, how the content begins and ends, and what went wrong."""

    read: int = 0
    broken: int = 0
    first_broken: int | None = None
    head: bytes = b""
    tail: bytes = b""
    problem: str | None = None
    has_end: bool = False


class TraceColumns(NamedTuple):
    """Kept events in the order of the file.

    `names` and `tracks` are codes into the texts; a track is "pid/tid". Times are ns, without the base of the file.
    `externals`, `correlations` and `details` are -1 where there is none; a detail is the JSON of an event that describes
    a collective.
    """

    kinds: npt.NDArray[np.uint8]
    names: Codes
    tracks: Codes
    begins: Integers
    durations: Integers
    externals: Integers
    correlations: Integers
    details: Codes
    name_texts: Sequence[str]
    track_texts: Sequence[str]
    detail_texts: Sequence[bytes]

    def rows(self, *kinds: int) -> Integers:
        """Places of the events of some kinds, in the order of the file."""
        is_wanted = np.zeros(256, dtype=bool)
        is_wanted[list(kinds)] = True
        return np.flatnonzero(is_wanted[self.kinds])

    def named(self, rows: Integers) -> list[str]:
        """Names of the events at some places."""
        return [self.name_texts[code] for code in self.names[rows].tolist()]
