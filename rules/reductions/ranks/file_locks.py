"""Ranks that wait for the lock of a file which another rank holds, as the kernel of their host states it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.roster import Roster

_LOCKED = re.compile(r"\d+ -> (?P<file>.*) locked by pid (?P<pid>\d{1,10})")
_PIDS = """
SELECT s.host, p.pid, min(p.rank) FROM processes p JOIN sources s USING (source_id)
WHERE p.rank IS NOT NULL GROUP BY ALL HAVING count(DISTINCT p.rank) = 1
"""

FileLocks = NewType("FileLocks", Mapping[int, Mapping[int, str]])
"""Of each rank a process of which holds a lock: the ranks that wait for it in all samples, and the file."""


@reduction
def file_locks(connection: DuckDBPyConnection, roster: Roster) -> FileLocks:
    """Find the process that holds each lock among those of the ranks on the same host."""
    waits = {rank: lock for rank, facts in roster.ranks.items() if (lock := _LOCKED.fullmatch("".join(facts.waits_on)))}
    owners = {(host, pid): rank for host, pid, rank in rows_of(connection, "processes", _PIDS)} if waits else {}
    found: dict[int, dict[int, str]] = defaultdict(dict)
    for rank in sorted(waits):
        owner = owners.get((roster.host_of(rank), int(waits[rank]["pid"])))
        if owner is not None and owner != rank:
            found[owner][rank] = waits[rank]["file"]
    return FileLocks(found)
