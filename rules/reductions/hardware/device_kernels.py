"""Which kernel the device of each rank was found in, and whose is another one than its peers'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.interface import reduction

_SHOWN = 96


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel on a rank's device, its name cut; `seconds` lie between the first and the last look that found this launch."""

    name: str
    communicates: bool
    seconds: float
    source: str


DeviceKernels = NewType("DeviceKernels", Mapping[int, tuple[Launch, ...]])
"""Launches that a debugger found, by rank; of one launch that two samples found there is one."""

_LAUNCHES = f"""
SELECT k.rank, any_value(k.kernel)[1:{_SHOWN}], bool_or(k.communicates), coalesce((max(k.time_ns) - min(k.time_ns)) / 1e9, 0),
    arg_min(s.path || '#' || k.locator, (s.path, k.locator))
FROM device_kernels k JOIN sources s USING (source_id) WHERE k.rank IS NOT NULL
GROUP BY k.rank, k.pid, k.device, k.grid ORDER BY ALL
"""


@reduction
def device_kernels(connection: DuckDBPyConnection) -> DeviceKernels:
    """Read them."""
    found: dict[int, list[Launch]] = {}
    for rank, *values in rows_of(connection, "device_kernels", _LAUNCHES):
        found.setdefault(rank, []).append(Launch(*values))
    return DeviceKernels({rank: tuple(launches) for rank, launches in found.items()})
