"""Which rank a process is that the kernel names by its number, or a device by its address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from duckdb import DuckDBPyConnection

from forensics.case.database import has_rows, rows_of
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


_STATED = {
    "ranks": "SELECT host, pid, rank FROM ranks",
    "processes": "SELECT host, pid, rank FROM processes",
    "stacks": "SELECT coalesce(t.host, s.host) AS host, t.pid, t.rank FROM stacks t JOIN sources s USING (source_id)",
    "process_ranks": "SELECT host, pid, rank FROM process_ranks",
}
_OWNERS = """
SELECT host, pid, min(rank) FROM ({stated})
WHERE pid IS NOT NULL AND rank IS NOT NULL GROUP BY host, pid HAVING count(DISTINCT rank) = 1
"""


@reduction
def owners(connection: DuckDBPyConnection) -> Owners:
    """Read them; a number that two ranks of a host have shows nothing."""
    stated = " UNION ALL ".join(query for table, query in _STATED.items() if has_rows(connection, table))
    rows = connection.execute(_OWNERS.format(stated=stated)).fetchall() if stated else []
    hosts = {host for (host,) in connection.execute("SELECT DISTINCT host FROM sources WHERE host IS NOT NULL").fetchall()}
    if not hosts and _is_whole(connection, len({rank for _, _, rank in rows})):
        hosts = {host for host, _, _ in rows if host is not None}
    return Owners({(host, pid): rank for host, pid, rank in rows}, frozenset(hosts))


def _is_whole(connection: DuckDBPyConnection, ranks: int) -> bool:
    """Whether the lines of a job speak of a process of each of its ranks: then their hosts are all that the job has."""
    sizes = rows_of(connection, "log_positions", "SELECT max(size) FROM log_positions WHERE origin = 'nccl'")
    return any(size is not None and size <= ranks for (size,) in sizes)
