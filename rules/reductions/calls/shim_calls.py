"""Which calls there are: those of dumps, and those of shim logs where some rank with a log left no dump."""

from __future__ import annotations

from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.interface import reduction


@dataclass(frozen=True, slots=True)
class Calls:
    """The case, and whose calls are in it: ranks that were `dumped`, and ranks whose calls are `logged` by the shim.

    `undetermined` are ranks that may wait in a call that shim logs could not show.
    """

    connection: DuckDBPyConnection
    dumped: frozenset[int] = frozenset()
    logged: frozenset[int] = frozenset()
    undetermined: frozenset[int] = frozenset()

    @property
    def from_shim(self) -> bool:
        """Whether all calls are those of shim logs."""
        return bool(self.logged) and not self.dumped

    @property
    def table(self) -> str:
        """Where the calls are read: those of shim logs are numbered in `latest_call` only."""
        return "latest_call" if self.logged else "operations"

    @property
    def logged_only(self) -> frozenset[int]:
        """Ranks whose calls are those of a shim log: they left no dump."""
        return self.logged - self.dumped


_DUMPED = "SELECT rank FROM capture"
_LOGGED = "SELECT rank FROM rank_logs WHERE EXISTS (SELECT 1 FROM logged_calls)"
# Calls in communicators that are left out, because some member is not known, may be what a rank waits in; alone nobody waits.
_UNDETERMINED = """
SELECT DISTINCT o.rank FROM operations o JOIN rank_logs r USING (source_id, rank)
WHERE o.state <> 'done' AND NOT EXISTS (
    SELECT 1 FROM logged_calls l WHERE l.source_id = o.source_id AND l.locator = o.locator
) AND NOT EXISTS (
    SELECT 1 FROM communicator_states s WHERE s.source_id = o.source_id AND s.communicator = o.communicator AND s.size = 1
)
"""


@reduction
def calls(connection: DuckDBPyConnection) -> Calls:
    """Whose calls there are."""
    dumped, logged = _ranks(connection, _DUMPED), _ranks(connection, _LOGGED)
    return Calls(connection, dumped, logged, _ranks(connection, _UNDETERMINED) - dumped if logged else frozenset())


def _ranks(connection: DuckDBPyConnection, query: str) -> frozenset[int]:
    return frozenset(rank for (rank,) in rows_of(connection, "operations", query))
