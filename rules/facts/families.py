"""Which family of evidence each source of a case belongs to: what would fail together counts once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.model import Evidence, Family

_KINDS = {
    "flight_recorder": Family.RECORDER,
    "python_stacks": Family.STACK,
    "process_facts": Family.PROCESS,
    "collection": Family.PROCESS,
    "nccl_ras": Family.RAS,
    "shim_log": Family.SHIM,
    "nic_epochs": Family.NIC,
    "ib_counters": Family.NIC,
    "kineto": Family.TRACE,
    "nsight": Family.TRACE,
    "stage_vectors": Family.TRACE,
}

SourceFamilies = NewType("SourceFamilies", Mapping[str, Family])
"""The family of each source by its path."""


def families(connection: DuckDBPyConnection) -> SourceFamilies:
    """The family of every source, by path; what is none of the recorders and samplers is a log."""
    rows = connection.execute("SELECT DISTINCT path, kind FROM sources").fetchall()
    return SourceFamilies({path: _KINDS.get(kind, Family.LOG) for path, kind in rows})


def behind(evidence: Iterable[Evidence], known: SourceFamilies) -> frozenset[Family]:
    """The families of the statements that support a finding; an absence has no source and is of no family."""
    paths = (item.source.partition("#")[0] for item in evidence if item.supports and item.source)
    return frozenset(known[path] for path in paths if path in known)
