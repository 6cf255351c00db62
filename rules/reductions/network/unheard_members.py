"""Groups of which a member left no log: what the others waited for it is not stated, so they may be late for its sake."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

# A message is seen at either end: only where the far end is not known is it unseen what was waited for there.
_GROUPS = """
SELECT o.communicator, list(DISTINCT o.rank ORDER BY o.rank), coalesce(bool_or(o.is_p2p), false) AS paired,
       any_value(g.method) = 'peers' OR (NOT paired AND any_value(g.size) > count(DISTINCT o.rank))
FROM operations o JOIN communicators g ON g.communicator = o.communicator
WHERE list_contains($sources, o.source_id) AND o.op_id > 0 AND o.rank IS NOT NULL
GROUP BY o.communicator ORDER BY o.communicator
"""


@dataclass(frozen=True, slots=True)
class HeardGroup:
    """Ranks of one communicator whose logs have calls of it; `is_partial` where a member may have delayed them unseen."""

    communicator: str
    ranks: frozenset[int]
    sends_messages: bool
    is_partial: bool


def heard_groups(connection: DuckDBPyConnection, sources: Collection[int]) -> tuple[HeardGroup, ...]:
    """Communicators that the given logs have calls of."""
    rows = connection.execute(_GROUPS, {"sources": sorted(sources)}).fetchall()
    return tuple(HeardGroup(label, frozenset(ranks), paired, partial) for label, ranks, paired, partial in rows)


def may_wait_unseen(rank: int, members: Collection[int], groups: Sequence[HeardGroup]) -> bool:
    """Whether a rank that comes late to its group may have waited for one without a log, itself or with who works in step.

    A partial group that holds all members of its own delays all of them alike, and shows nothing of their order.
    """
    others = [group for group in groups if not group.ranks.issuperset(members)]
    own = [group for group in others if rank in group.ranks]
    beside = {other for group in own if not group.sends_messages for other in group.ranks}
    passed = any(group.is_partial and group.sends_messages and group.ranks & beside for group in others)
    return passed or any(group.is_partial for group in own)
