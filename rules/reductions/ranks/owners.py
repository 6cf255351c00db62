"""Which rank a process is that the kernel names by its number, and what the kernel wrote of the processes of ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import Evidence
from forensics.rules.reductions.interface import reduction

Place = tuple[str | None, object]
"""A host, with the number of a process or the address of a device there."""


@dataclass(frozen=True, slots=True)
class Owners:
    """Ranks by host and process; `hosts` are those that any evidence is of."""

    processes: Mapping[Place, int] = field(default_factory=dict)
    hosts: frozenset[str] = frozenset()

    def rank(self, host: str | None, process: int | None) -> int | None:
        """The rank of a process, None where nothing or too much tells it."""
        return self.among(self.processes, host, process)

    def among(self, ranks: Mapping[Place, int], host: str | None, name: object) -> int | None:
        """The rank at a place; where all evidence is of one host, or of none that is known, its name need not be known."""
        near = {host} if len(self.hosts | ({host} if host else set())) > 1 else {host, None, *self.hosts}
        found = {ranks[each, name] for each in near if (each, name) in ranks}
        return found.pop() if len(found) == 1 else None


@reduction
def owners(connection: DuckDBPyConnection) -> Owners:
    """Read them; a number that two ranks of a host have tells nothing."""
    rows = connection.execute(
        """
        SELECT host, pid, min(rank) FROM (
            SELECT host, pid, rank FROM ranks UNION ALL SELECT host, pid, rank FROM processes
            UNION ALL SELECT s.host, t.pid, t.rank FROM stacks t JOIN sources s USING (source_id)
        ) WHERE pid IS NOT NULL AND rank IS NOT NULL GROUP BY host, pid HAVING count(DISTINCT rank) = 1
        """
    ).fetchall()
    hosts = connection.execute("SELECT DISTINCT host FROM sources WHERE host IS NOT NULL").fetchall()
    return Owners({(host, pid): rank for host, pid, rank in rows}, frozenset(host for (host,) in hosts))


KernelLines = NewType("KernelLines", Mapping[int, tuple[Evidence, ...]])
"""What the kernel wrote of the processes of each rank: tasks that do not go on, and crashes."""


LostStorage = NewType("LostStorage", Mapping[str | None, tuple[Evidence, ...]])
"""Servers of files that the kernel of each host lost, and has not reported as back."""


@reduction
def lost_storage(connection: DuckDBPyConnection) -> LostStorage:
    """Read the last word on each server."""
    rows = rows_of(
        connection,
        "log_events",
        """
        SELECT coalesce(l.host, s.host), l.text, s.path || coalesce('#line=' || l.locator, '')
        FROM log_events l JOIN sources s USING (source_id)
        WHERE l.kind IN ('server_not_responding', 'server_ok', 'client_evicted', 'ceph_session_lost') AND s.kind = 'kernel_log'
        QUALIFY row_number() OVER (PARTITION BY coalesce(l.host, s.host), l.subject
            ORDER BY l.time_ns DESC NULLS LAST, s.path, l.locator DESC) = 1 AND l.kind <> 'server_ok'
        ORDER BY ALL
        """,
    )
    found: dict[str | None, list[Evidence]] = defaultdict(list)
    for host, text, source in rows:
        found[host].append(Evidence(f"the kernel of {host or 'a host'} lost its storage: {text}", source))
    return LostStorage({host: tuple(lines) for host, lines in found.items()})


@reduction
def kernel_lines(connection: DuckDBPyConnection, known: Owners) -> KernelLines:
    """Read the newest line of each kind."""
    rows = rows_of(
        connection,
        "log_events",
        """
        SELECT coalesce(l.host, s.host), TRY_CAST(l.subject AS BIGINT), l.text, s.path || coalesce('#line=' || l.locator, '')
        FROM log_events l JOIN sources s USING (source_id)
        WHERE l.kind IN ('hung_task', 'soft_lockup', 'segfault') AND s.kind = 'kernel_log'
        QUALIFY row_number() OVER (PARTITION BY coalesce(l.host, s.host), l.subject, l.kind
            ORDER BY l.time_ns DESC NULLS LAST, s.path, l.locator DESC) = 1
        ORDER BY ALL
        """,
    )
    found: dict[int, list[Evidence]] = defaultdict(list)
    for host, pid, text, source in rows:
        if (rank := known.rank(host, pid)) is not None:
            found[rank].append(Evidence(f"the kernel tells of rank {rank}: {text}", source))
    return KernelLines({rank: tuple(lines) for rank, lines in found.items()})
