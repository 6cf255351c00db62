"""Which family of evidence each source of a case belongs to: what would fail together counts once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
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
"""The family of each source by its path, and of stacks in a log by their places in it."""

_IN_LOGS = """
SELECT DISTINCT s.path || '#' || k.locator FROM stacks k JOIN sources s USING (source_id) WHERE s.kind <> 'python_stacks'
"""


def families(connection: DuckDBPyConnection) -> SourceFamilies:
    """The family of every source, by path; what is none of the recorders and samplers is a log."""
    rows = connection.execute("SELECT DISTINCT path, kind FROM sources").fetchall()
    stacks = rows_of(connection, "stacks", _IN_LOGS)
    return SourceFamilies(
        {path: _KINDS.get(kind, Family.LOG) for path, kind in rows} | {place: Family.STACK for (place,) in stacks}
    )


def behind(evidence: Iterable[Evidence], known: SourceFamilies) -> frozenset[Family]:
    """The families of the statements that support a finding; an absence has no source and is of no family."""
    sources = (item.source for item in evidence if item.supports and item.source)
    found = (known.get(source) or known.get(source.partition("#")[0]) for source in sources)
    return frozenset(family for family in found if family is not None)
