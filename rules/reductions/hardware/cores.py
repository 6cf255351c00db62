"""Hosts on which tasks wait for a core far more often than on the others: pressure stall information of the kernel.

`cpu` of node.json has the share of the time in which some task waited (psi.rst of Linux 4.20), whoever's task it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NewType

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.interface import reduction

# Per cent of the time, and times what is usual on the other hosts: one host alone tells nothing.
_LEAST_WAITING, _FACTOR, _FEWEST_OTHERS = 10.0, 4.0, 2

_PRESSURE = """
SELECT s.host, max(try_cast(json_extract_string(try_cast(c.value AS JSON), '$.pressure.cpu.some.avg10') AS DOUBLE)) AS waiting,
       min(s.path)
FROM job_config c JOIN sources s USING (source_id) WHERE c.key = 'node.cpu' AND s.host IS NOT NULL
GROUP BY s.host HAVING waiting IS NOT NULL ORDER BY s.host
"""


@dataclass(frozen=True, slots=True)
class TakenCores:
    """A host on which some task waits for a core `waiting` per cent of the time, `usual` on the others."""

    host: str
    waiting: float
    usual: float
    source: str

    @property
    def statement(self) -> str:
        """What was seen, in words."""
        return (
            f"{self.host} is short of CPU: some task waits for a core {self.waiting:.0f} % of the time, "
            f"{self.usual:.1f} % on the other hosts (median)"
        )


BusyHosts = NewType("BusyHosts", Mapping[str, TakenCores])
"""Hosts whose cores are taken, beside others that have enough."""


@reduction
def busy_hosts(connection: DuckDBPyConnection) -> BusyHosts:
    """By host; what is so on all hosts is how the job is made."""
    rows = rows_of(connection, "job_config", _PRESSURE)
    found = (
        TakenCores(host, waiting, usual, path)
        for host, waiting, path in rows
        if waiting >= _LEAST_WAITING
        and (usual := _median([other for name, other, _ in rows if name != host])) is not None
        and waiting >= _FACTOR * usual
    )
    return BusyHosts({each.host: each for each in found})


def _median(others: list[float]) -> float | None:
    return float(np.median(others)) if len(others) >= _FEWEST_OTHERS else None
