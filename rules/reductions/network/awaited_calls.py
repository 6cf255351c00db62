"""Collectives as all of their members saw them, in which it shows who waited for whom, each on its own clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.network.exchanges import EXCHANGE


@dataclass(frozen=True, slots=True)
class AwaitedCall:
    """One collective as all members saw it: what each waited at most and at least (ns), when it ended for each.

    `held` is how long chunks that had arrived waited for the GPU of each (ns), `took` how long each was in it, and of an
    exchange `load` what each moved, relative to the mean.
    """

    number: int
    most: Mapping[int, float]
    least: Mapping[int, float]
    ends: Mapping[int, int]
    held: Mapping[int, float]
    took: Mapping[int, float]
    source: Mapping[int, str]
    load: Mapping[int, float] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The member that waited least."""
        return min(self.least, key=lambda rank: (self.least[rank], rank))

    def lateness(self, rank: int) -> float:
        """ns by which a member came later than the one before it, at least."""
        return min(waited for other, waited in self.least.items() if other != rank) - self.most[rank]


# Buffers to receive into and to send from wait side by side: the longer wait is what a rank waited at least, both what at most.
_WAITED = f"""
WITH ends AS (
    SELECT communicator, kind, number, rank, size, source_id, max(wire_ns) AS idle, max(credit_ns + nic_ns) AS blocked,
           max(consume_ns) AS held, max(took_ns) AS took, min(took_ns) AS own, max(end_ns) AS end_ns, min(locator) AS locator
    FROM ended_flows WHERE kind NOT IN ('p2p', '{EXCHANGE}') AND number IS NOT NULL
    GROUP BY communicator, kind, number, rank, size, source_id
)
SELECT e.communicator, e.kind, e.number, list(e.rank ORDER BY e.rank),
       list(least(coalesce(idle, 0) + coalesce(blocked, 0), took) ORDER BY e.rank),
       list(greatest(coalesce(idle, 0), coalesce(blocked, 0)) ORDER BY e.rank), list(e.end_ns ORDER BY e.rank),
       list(coalesce(held, 0) ORDER BY e.rank), list(own ORDER BY e.rank),
       list(s.path || '#entry=' || e.locator ORDER BY e.rank)
FROM ends e JOIN sources s USING (source_id)
GROUP BY e.communicator, e.kind, e.number, e.size HAVING count(*) = e.size ORDER BY e.communicator, e.kind, e.number
"""


def collective_calls(connection: DuckDBPyConnection) -> dict[tuple[str, str], Sequence[AwaitedCall]]:
    """Calls in `ended_flows` that all members of their communicator saw, by communicator and kind."""
    calls: dict[tuple[str, str], list[AwaitedCall]] = defaultdict(list)
    for communicator, kind, number, ranks, *columns in connection.execute(_WAITED).fetchall():
        calls[communicator, kind].append(AwaitedCall(number, *(dict(zip(ranks, column, strict=True)) for column in columns)))
    return dict(calls)
