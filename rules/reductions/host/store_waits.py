"""Ranks that wait for a key of the job's store, by the connection that their main thread waits on.

`store.wait` and `store.get` leave no Python frame. The store listens at MASTER_PORT of the first rank, or of torchrun's agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.samples import StacksByRank

_PORTS = "SELECT rank, min(value) FROM job_config WHERE key = 'env.MASTER_PORT' AND rank IS NOT NULL GROUP BY rank"

StoreWaits = NewType("StoreWaits", Mapping[int, str])
"""Ranks that wait for an answer of the store right below the job's own code in all samples, and the connection."""


@reduction
def store_waits(connection: DuckDBPyConnection, roster: Roster, stacks: StacksByRank) -> StoreWaits:
    """Find the main threads that wait on nothing but a connection to the port of the store."""
    ports = dict(rows_of(connection, "job_config", _PORTS))
    found: dict[int, str] = {}
    for rank in sorted(ports.keys() & stacks.keys()):
        files = roster.rank(rank).waits_on
        peer = files[0].partition(" -> ")[2] if len(files) == 1 else ""
        if stacks[rank].rests and peer.startswith("tcp to ") and peer.rpartition(":")[2] == ports[rank]:
            found[rank] = peer.removeprefix("tcp to ")
    return StoreWaits(found)
