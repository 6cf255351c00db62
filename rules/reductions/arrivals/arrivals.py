"""When the members came to the collectives that all of them finished: by the clock of their host, or each by its own.

Clocks of one host are the same, and arrivals on it can be compared. Elsewhere nothing but lengths on a rank's own clock counts
(Mycroft section 7.1): members leave a collective together, and the one that came last is in it for the shortest time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

# Hosts of devices run ahead: only what the device did tells who was awaited, and the watchdog sees it when it next looks.
WATCHDOG_INTERVAL_NS = 250_000_000
# Nobody comes out of these before all members went in.
JOINT = (
    "('all_reduce', 'all_gather', 'all_gather_base', 'all_gather_single', 'all_gather_into_tensor', 'reduce_scatter', "
    "'reduce_scatter_base', 'reduce_scatter_single', 'reduce_scatter_tensor', 'all_to_all', 'all_to_all_single', 'barrier')"
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One collective as all members came to it.

    `behind` is how many ns after the first each came; `at_ns` a moment of the call for each: its arrival on one clock, or its
    end on its own. `is_bound` marks a call of which only the issuing by the host is known: who came last is sure, by how
    much is at most the difference. `coarse_ns` is the least difference that counts.
    """

    sequence: int
    behind: Mapping[int, int]
    at_ns: Mapping[int, int]
    source: Mapping[int, str]
    coarse_ns: int = 0
    is_bound: bool = False
    on_own_clocks: bool = False

    @property
    def last(self) -> int:
        """The member that came last."""
        return max(self.behind, key=lambda rank: (self.behind[rank], -rank))

    def lateness(self, rank: int) -> int:
        """ns by which a member came after the last of the others; 0 when one came after it, or when it does not count."""
        by = self.behind[rank] - max(behind for other, behind in self.behind.items() if other != rank)
        return by if by >= max(self.coarse_ns, 1) else 0


_ON_ONE_HOST = """
WITH one_host AS (
    SELECT communicator FROM members LEFT JOIN (SELECT rank, min(host) AS host FROM ranks GROUP BY rank) h USING (rank)
    GROUP BY communicator HAVING count(DISTINCT host) = 1 AND count(host) = count(*) AND count(*) > 1
)
SELECT o.communicator, o.kind || ' ' || coalesce(o.input_sizes, '') AS signature, o.sequence, list(o.rank ORDER BY o.rank),
       list(o.enqueued_ns ORDER BY o.rank), list(o.enqueued_ns ORDER BY o.rank), 0, false,
       list(s.path || '#entry=' || o.locator ORDER BY o.rank)
FROM latest_call o JOIN one_host USING (communicator) JOIN sources s USING (source_id)
JOIN (SELECT communicator, count(*) AS size FROM members GROUP BY communicator) m USING (communicator)
WHERE o.backend = 'gloo' AND NOT coalesce(o.is_p2p, false) AND o.enqueued_ns IS NOT NULL AND o.sequence IS NOT NULL
GROUP BY o.communicator, o.sequence, signature, m.size HAVING count(*) = m.size ORDER BY o.communicator, signature, o.sequence
"""

# Stages of a pipeline have different work: members that send to each other, through others too, are not compared.
_OWN_CLOCKS = f"""
WITH RECURSIVE linked AS (
    SELECT DISTINCT o.rank AS a, m.rank AS b FROM operations o
    JOIN members m ON m.communicator = o.communicator AND m.position = o.peer WHERE o.is_p2p
), reached AS (
    SELECT a, b FROM linked UNION SELECT r.a, l.b FROM reached r JOIN linked l ON l.a = r.b
), staged AS (
    SELECT DISTINCT x.communicator FROM members x JOIN members y USING (communicator)
    JOIN reached r ON r.a = x.rank AND r.b = y.rank WHERE x.rank <> y.rank
), took AS (
    SELECT o.communicator, o.kind || ' ' || coalesce(o.input_sizes, '') AS signature, o.sequence, o.rank,
           coalesce(o.duration_ns, o.device_end_ns - coalesce(o.device_start_ns, o.enqueued_ns)) AS took_ns,
           coalesce(o.device_end_ns, o.enqueued_ns) AS end_ns, o.duration_ns IS NULL AS coarse,
           o.duration_ns IS NULL AND o.device_start_ns IS NULL AS bound, s.path || '#entry=' || o.locator AS source
    FROM latest_call o JOIN sources s USING (source_id)
    WHERE o.backend <> 'gloo' AND NOT coalesce(o.is_p2p, false) AND ltrim(o.kind, '_') IN {JOINT} AND o.state = 'done'
      AND o.sequence IS NOT NULL AND o.communicator NOT IN (SELECT communicator FROM staged)
)
SELECT t.communicator, t.signature, t.sequence, list(t.rank ORDER BY t.rank), list(-t.took_ns ORDER BY t.rank),
       list(t.end_ns ORDER BY t.rank), CASE WHEN bool_or(t.coarse) THEN {WATCHDOG_INTERVAL_NS} ELSE 0 END, bool_or(t.bound),
       list(t.source ORDER BY t.rank)
FROM took t JOIN (SELECT communicator, count(*) AS size FROM members GROUP BY communicator) m USING (communicator)
WHERE t.took_ns IS NOT NULL AND t.end_ns IS NOT NULL AND m.size > 1
GROUP BY t.communicator, t.signature, t.sequence, m.size HAVING count(*) = m.size
ORDER BY t.communicator, t.signature, t.sequence
"""
# Of a call that only its issuing dates, the last member must have been in it for less than half of what it came after.
_PROMPT = 0.5

Series = tuple[str, str, tuple[Arrival, ...]]
"""Communicator, kind of call with its sizes, and its calls in the order of their numbers."""


def arrivals(connection: DuckDBPyConnection) -> Iterator[Series]:
    """Arrivals at every kind of call of every communicator."""
    for sql, on_own_clocks in ((_ON_ONE_HOST, False), (_OWN_CLOCKS, True)):
        found: dict[tuple[str, str], list[Arrival]] = defaultdict(list)
        for communicator, signature, sequence, ranks, came, at, coarse, bound, sources in connection.execute(sql).fetchall():
            behind, when, where = (dict(zip(ranks, each, strict=True)) for each in (_behind(came, bound), at, sources))
            found[communicator, signature].append(Arrival(sequence, behind, when, where, coarse, bound, on_own_clocks))
        yield from ((*key, tuple(calls)) for key, calls in found.items())


def _behind(came: Sequence[int], bound: bool) -> list[int]:
    """ns after the first; of a bound call whose last member was in it for long, nothing is known."""
    *_, before, last = sorted(came)
    if bound and -last > _PROMPT * (last - before):
        return [0] * len(came)
    first = min(came)
    return [moment - first for moment in came]
