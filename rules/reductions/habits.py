"""In which order a rank used its communicators before, and whether its last call broke that habit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from duckdb import DuckDBPyConnection

_ORDER = """
WITH newest AS (SELECT max(snapshot) AS snapshot FROM operations WHERE rank = $rank)
SELECT communicator || ' ' || kind || ' ' || coalesce(input_sizes, ''), communicator, state
FROM operations JOIN newest USING (snapshot)
WHERE rank = $rank AND communicator IS NOT NULL AND NOT coalesce(is_p2p, false) ORDER BY record_id, locator
"""


def broke_habit(connection: DuckDBPyConnection, ranks: Collection[int]) -> frozenset[int]:
    """Ranks whose pending call never followed the call before it, although something else usually does."""
    return frozenset(rank for rank in sorted(ranks) if _unusual(connection.execute(_ORDER, {"rank": rank}).fetchall()))


def _unusual(calls: list[tuple[str, str, str]]) -> bool:
    """Compare the first pending call with what followed the same predecessor earlier in the rank's own history."""
    pending = next((i for i, (_, _, state) in enumerate(calls) if state != "done"), None)
    if not pending:
        return False
    before, now = calls[pending - 1], calls[pending]
    followers = Counter(calls[i + 1][1] for i in range(pending - 1) if calls[i][0] == before[0])
    return bool(followers) and now[1] not in followers
