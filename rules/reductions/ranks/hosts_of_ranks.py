"""On which host each rank runs."""

from __future__ import annotations

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of

_ANY_HOST = "SELECT rank, min(host) FROM sources WHERE rank IS NOT NULL AND host IS NOT NULL GROUP BY rank"
_HOSTS = (
    "SELECT rank, min(host) FROM {table} WHERE rank >= 0 AND host IS NOT NULL GROUP BY rank HAVING count(DISTINCT host) = 1"
)


def hosts_of_ranks(connection: DuckDBPyConnection) -> dict[int, str]:
    """Where stacks say that the process is, else what files are of, else what a text says of it, else where its NIC is."""
    stated = rows_of(connection, "process_ranks", _HOSTS.format(table="process_ranks"))
    seen = rows_of(connection, "stacks", _HOSTS.format(table="stacks"))
    nics = rows_of(connection, "queue_pairs", _HOSTS.format(table="queue_pairs"))
    rows = rows_of(connection, "sources", _ANY_HOST)
    return {**dict(nics), **dict(stated), **dict(rows), **dict(seen)}
