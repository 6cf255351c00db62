"""What the kernel of a host wrote of the processes of ranks, and of the storage that they use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import Evidence
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.owners import Owners

KernelLines = NewType("KernelLines", Mapping[int, tuple[Evidence, ...]])
"""What the kernel wrote of the processes of each rank: tasks that do not go on, and crashes."""


@reduction
def kernel_lines(connection: DuckDBPyConnection, known: Owners) -> KernelLines:
    """Read the newest line of each kind."""
    rows = rows_of(
        connection,
        "log_events",
        """
        SELECT host, TRY_CAST(subject AS BIGINT), text, source FROM logged_event
        WHERE kind IN ('hung_task', 'soft_lockup', 'segfault')
        QUALIFY row_number() OVER (PARTITION BY host, subject, kind ORDER BY time_ns DESC NULLS LAST, path, locator DESC) = 1
        ORDER BY ALL
        """,
    )
    found: dict[int, list[Evidence]] = defaultdict(list)
    for host, pid, text, source in rows:
        if (rank := known.rank(host, pid)) is not None:
            found[rank].append(Evidence(f"the kernel tells of rank {rank}: {text}", source))
    return KernelLines({rank: tuple(lines) for rank, lines in found.items()})


LostStorage = NewType("LostStorage", Mapping[str | None, tuple[Evidence, ...]])
"""Servers of files that the kernel of each host lost, and has not reported as back."""


@reduction
def lost_storage(connection: DuckDBPyConnection) -> LostStorage:
    """Read the last word on each server."""
    rows = rows_of(
        connection,
        "log_events",
        """
        SELECT host, text, source FROM logged_event
        WHERE kind IN ('server_not_responding', 'server_ok', 'client_evicted', 'ceph_session_lost')
        QUALIFY row_number() OVER (PARTITION BY host, subject ORDER BY time_ns DESC NULLS LAST, path, locator DESC) = 1
            AND kind <> 'server_ok'
        ORDER BY ALL
        """,
    )
    found: dict[str | None, list[Evidence]] = defaultdict(list)
    for host, text, source in rows:
        found[host].append(Evidence(f"the kernel of {host or 'a host'} lost its storage: {text}", source))
    return LostStorage({host: tuple(lines) for host, lines in found.items()})
