"""Who arrives last at collectives, by how much, and how regularly: what a moving job loses to one rank.

The time lost to a rank at one collective is the gap between its arrival and the one before it: without this rank the others
would have gone on that much earlier. Only members whose clocks are the same (one host) are compared.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from duckdb import DuckDBPyConnection


@dataclass(frozen=True, slots=True)
class Lateness:
    """One rank at one kind of call of one communicator.

    `late` of `calls` calls had this rank last by a material gap; `lost_ns` is the sum of these gaps, `share` their part of the
    time that the calls span, `typical_ns` the median gap.
    """

    rank: int
    communicator: str
    kind: str
    calls: int
    late: int
    lost_ns: int
    share: float
    typical_ns: int
    source: str


# Hosts of devices run ahead: only the start on the device tells who was awaited, and the watchdog sees it when it next looks.
_WATCHDOG_LOOKS_NS = 250_000_000

_ARRIVALS = f"""
WITH newest AS (SELECT rank, max(snapshot) AS snapshot FROM operations WHERE rank IS NOT NULL GROUP BY rank
), one_host AS (
    SELECT communicator FROM members LEFT JOIN (SELECT rank, min(host) AS host FROM ranks GROUP BY rank) h USING (rank)
    GROUP BY communicator HAVING count(DISTINCT host) = 1 AND count(host) = count(*) AND count(*) > 1
), calls AS (
    SELECT o.communicator, o.sequence, o.rank, o.kind || ' ' || coalesce(o.input_sizes, '') AS signature,
           CASE WHEN o.backend = 'gloo' THEN o.enqueued_ns ELSE o.device_start_ns END AS arrived_ns,
           CASE WHEN o.backend = 'gloo' THEN 0 ELSE {_WATCHDOG_LOOKS_NS} END AS coarse_ns,
           s.path || '#entry=' || o.locator AS source
    FROM operations o JOIN newest USING (rank, snapshot) JOIN one_host USING (communicator) JOIN sources s USING (source_id)
    WHERE NOT coalesce(o.is_p2p, false) AND arrived_ns IS NOT NULL AND o.sequence IS NOT NULL
), joined AS (
    SELECT c.communicator, c.sequence, min(c.signature) AS signature, max(c.arrived_ns) AS last_ns,
           arg_max(c.rank, c.arrived_ns) AS rank, arg_max(c.source, c.arrived_ns) AS source,
           list_sort(list(c.arrived_ns))[-2] AS before_ns, max(c.coarse_ns) AS coarse_ns
    FROM calls c JOIN communicators m USING (communicator) GROUP BY c.communicator, c.sequence, m.size HAVING count(*) = m.size
)
SELECT communicator, signature, rank, CASE WHEN last_ns - before_ns < coarse_ns THEN 0 ELSE last_ns - before_ns END, last_ns,
       source
FROM joined ORDER BY communicator, signature, last_ns
"""


def lateness(connection: DuckDBPyConnection, least_gap_ns: int) -> tuple[Lateness, ...]:
    """Sum up the material gaps (at least `least_gap_ns`, and a tenth of the time between calls) by rank, most lost first."""
    calls: dict[tuple[str, str], list[tuple[int, int, int, str]]] = defaultdict(list)
    for communicator, signature, rank, gap, last, source in connection.execute(_ARRIVALS).fetchall():
        calls[communicator, signature].append((rank, gap, last, source))
    found = [item for key, rows in calls.items() for item in _of_one_call(*key, rows, least_gap_ns)]
    return tuple(sorted(found, key=lambda item: (-item.lost_ns, item.rank, item.communicator, item.kind)))


def _of_one_call(communicator: str, signature: str, rows: list[tuple[int, int, int, str]], least_gap_ns: int) -> list[Lateness]:
    # The first arrivals of a run wait for start-up, not for a slow rank.
    rows = rows[len(rows) // 4 :]
    if len(rows) < 2:
        return []
    span = rows[-1][2] - rows[0][2]
    material = max(least_gap_ns, span // (10 * (len(rows) - 1)))
    late: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for rank, gap, _, source in rows:
        if gap >= material:
            late[rank].append((gap, source))
    return [
        Lateness(
            rank=rank,
            communicator=communicator,
            kind=signature.split(" ")[0],
            calls=len(rows),
            late=len(gaps),
            lost_ns=sum(gap for gap, _ in gaps),
            share=min(1.0, sum(gap for gap, _ in gaps) / span) if span else 0.0,
            typical_ns=sorted(gap for gap, _ in gaps)[len(gaps) // 2],
            source=gaps[-1][1],
        )
        for rank, gaps in sorted(late.items())
    ]
