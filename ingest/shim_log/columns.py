"""Columns made of the arrays of a shim log: times, texts by code, communicators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from forensics.ingest._shared.packed import Packed, all_equal, coded_column, number_column
from forensics.ingest.shim_log import layout
from forensics.ingest.shim_log.clock import Clock
from forensics.ingest.shim_log.file import ShimFile, Table

LABEL = "nccl:"
_LOCAL_ID = 8


def numbers(values: npt.NDArray[Any], missing: npt.NDArray[np.bool_] | None = None) -> Packed:
    """Integers; unsigned ones of 64 bits keep their bits."""
    wide = values.view(np.int64) if values.dtype == np.uint64 else values.astype(np.int64)
    if missing is not None:
        return number_column(wide, missing)
    return Packed(len(wide), wide[:1] if len(wide) and all_equal(wide) else wide)


def times(clock: Clock, ticks: npt.NDArray[Any]) -> Packed:
    """CLOCK_REALTIME, null for tick 0."""
    return number_column(*clock.realtime(ticks.astype(np.uint64)))


def call_times(clock: Clock, ticks: npt.NDArray[Any]) -> Packed:
    """When calls returned: null inside, and where the moment was not taken."""
    return times(clock, np.where(ticks == layout.LEFT, 0, ticks))


def lengths(clock: Clock, ticks: npt.NDArray[Any], missing: npt.NDArray[np.bool_] | None = None) -> Packed:
    """Durations in nanoseconds."""
    values, unknown = clock.length(ticks.astype(np.float64))
    return number_column(values, unknown if missing is None else unknown | missing)


def words(codes: npt.NDArray[Any], names: Mapping[int, str] | Sequence[str]) -> Packed:
    """Texts by number; numbers without a name become `number <n>`."""
    known = names if isinstance(names, Mapping) else dict(enumerate(names))
    distinct, inverse = _distinct(codes)
    return coded_column(inverse, [known.get(int(code), f"number {int(code)}") for code in distinct])


def _distinct(codes: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Codes that occur, rising, and the place of each code among them. Codes of one byte need not be sorted for that."""
    if codes.dtype != np.uint8:
        return np.unique(codes, return_inverse=True)
    found = np.flatnonzero(np.bincount(codes))
    places = np.zeros(256, np.int32)
    places[found] = np.arange(len(found))
    return found, places[codes]


def texts(values: Sequence[str | None]) -> Packed:
    """Texts as they are."""
    known = {value: code for code, value in enumerate(dict.fromkeys(values))}
    codes = np.fromiter(map(known.__getitem__, values), np.int32, len(values))
    return coded_column(codes, list(known))


def labels(log: ShimFile) -> list[str | None]:
    """Label of each communicator slot; the same on every member unless the identity is local to the process.

    The identity made of the unique id comes first, then the one that NCCL stated a profiler.
    """
    comms = log.tables.get(layout.COMMS)
    if comms is None:
        return []
    fields = (comms[name].tolist() for name in ("generation", "identity", "flags", "comm_id"))
    return [_label(log, slot, *said) for slot, said in enumerate(zip(*fields, strict=True))]


def _label(log: ShimFile, slot: int, generation: int, identity: int, flags: int, comm_id: int) -> str | None:
    if not generation:
        return None
    shared = identity if not flags & _LOCAL_ID else 0
    if shared or comm_id:
        return f"{LABEL}{shared:016x}" if shared else f"{LABEL}id-{comm_id:016x}"
    return f"{LABEL}local-{int(log.head['pid'])}-{slot}.{generation}"


def communicators(log: ShimFile, records: Table) -> Packed:
    """Label of the communicator of each record; null without one, or when its slot has been used for another since."""
    comms = log.tables.get(layout.COMMS)
    count = 0 if comms is None else len(comms)
    slots = records["comm"].astype(np.int64)
    if comms is None or not count:
        return texts([None] * len(records))
    inside = slots < count
    safe = np.where(inside, slots, 0)
    same = inside & ((comms["generation"][safe] & 0xFF) == records["generation"])
    return coded_column(np.where(same, safe, count), [*labels(log), None])
