"""What part of the rate of its line each NIC moves while it has work requests in flight (VenusTrace section 3.2.2).

Links that are all slow look alike, and a job that was slow from its first step on has no better past: what a port is rated
for is the only measure left. A NIC has work at least as long as the busiest of its queue pairs, so that all that it sent in
that time is a bound from above. So is the sum over the queue pairs of one connection, as if they were busy at once.
A queue pair with one sample in the newer half of its log counts by its last one before that too, in proportion. What those sent
of which a log holds one sample in all (those of exchanges with many) is taken from their bytes in all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NewType

import networkx as nx
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.shim_logs import ShimLogs, source_ids

LEAST_REQUESTS, LEAST_BYTES = 16, 128 << 10
"""Of fewer requests, or of small ones, the latency is most of the time."""

OF_LINE = 0.7
"""Of the rate of the line: NICs that have work reach nine tenths of it."""
# NICs, and hosts: fewer may be those of one slow host or leaf.
_LEAST_NICS, _LEAST_HOSTS = 4, 2
# Of what the queue pairs of a NIC sent since they were made: of the others one sample is known of late, and they are taken to
# have sent in the same course. Where these have more than half of it, what the NIC moves lately is not known.
_LEAST_SAMPLED = 0.5
# Of the newer half of a log: a sample so near before it is where it begins, for a queue pair that was not at work then.
_NEAR = 0.5
# Of the time, at the NIC that loses most: a network that has little to do delays nobody.
_LEAST_LOST = 0.05


@dataclass(frozen=True, slots=True)
class LineUse:
    """One NIC of `ranks` in the newer half of their logs: it moved `rate` at most (bytes per second) while it had work.

    `line_rate` is what its port is rated for, None not known; `busy` the share of the time in which it had work, at least, and
    `busy_most` that of the time between its samples, which may be far apart in a log that lost many;
    `peers` are the hosts that it sent to, `reached` the NICs (host and name), as far as both ends of a queue pair are known.
    """

    host: str
    nic: str
    ranks: tuple[int, ...]
    rate: float
    busy: float
    line_rate: float | None
    source: str
    peers: tuple[str, ...] = ()
    busy_most: float = 1.0
    reached: frozenset[tuple[str, str]] = frozenset()

    @property
    def part(self) -> float | None:
        """Of the rate of its line, at most."""
        return self.rate / self.line_rate if self.line_rate else None

    @property
    def lost(self) -> float:
        """Share of the time that it would not have needed at the rate of its line."""
        return self.busy * max(0.0, 1 - self.part) if self.part is not None else 0.0


LineUses = NewType("LineUses", tuple[LineUse, ...])
"""NICs that moved enough in large requests, by host and name."""


def most_of_lines(uses: Sequence[LineUse]) -> float | None:
    """The largest part of its line that a NIC moves; None where too few lines are known, or nothing is lost to it."""
    known = [use for use in uses if use.part is not None]
    enough = len(known) >= _LEAST_NICS and len({use.host for use in known}) >= _LEAST_HOSTS
    if not enough or max(use.lost for use in known) < _LEAST_LOST:
        return None
    return max(use.part or 0.0 for use in known)


def by_hosts(uses: Sequence[LineUse]) -> tuple[float, ...]:
    """The part of its lines that each host moves: the median of its NICs whose lines are known."""
    found = whole([use for use in uses if use.part is not None])
    return tuple(median(use.part or 0.0 for use in nics) for _, nics in sorted(found.items()))


def whole(uses: Sequence[LineUse]) -> Mapping[str, list[LineUse]]:
    """NICs by host; of a host that has such, those that as many ranks have as is usual: on the others one was not seen."""
    hosts = defaultdict[str, list[LineUse]](list)
    for use in uses:
        hosts[use.host].append(use)
    usual = median(len(use.ranks) for use in uses) if uses else 0
    return {host: [use for use in nics if len(use.ranks) >= usual] or nics for host, nics in hosts.items()}


def apart(uses: Sequence[LineUse]) -> int:
    """How many pairs of hosts, each host in one of them, have traffic: as many hosts must be slow where all traffic is."""
    ways = nx.Graph([(use.host, peer) for use in uses for peer in use.peers if peer != use.host])
    return len(nx.max_weight_matching(ways, maxcardinality=True))


ENDS = """ends AS (
    SELECT q.source_id, q.queue_pair, min(coalesce(o.host, t.host)) AS host, min(o.nic) AS nic
    FROM queue_pairs q JOIN queue_pairs o ON o.gid = q.remote_nic AND o.number = try_cast(q.remote_queue_pair AS BIGINT)
    JOIN sources t ON t.source_id = o.source_id
    WHERE list_contains($sources, q.source_id) AND list_contains($sources, o.source_id)
    GROUP BY q.source_id, q.queue_pair HAVING count(DISTINCT coalesce(o.host, t.host)) = 1
)"""
"""The host and NIC at the other end of each queue pair, where one is known: a part of a query with `sources`."""

_USES = f"""
WITH halves AS (
    SELECT source_id, (min(time_ns) + max(time_ns)) // 2 AS middle, max(time_ns) - (min(time_ns) + max(time_ns)) // 2 AS span
    FROM wr_samples WHERE list_contains($sources, source_id) GROUP BY source_id
), {ENDS}, rates AS (
    SELECT host, parent, max(rate_bytes_per_s) AS line FROM devices WHERE kind = 'port' GROUP BY host, parent
), pairs AS (
    SELECT w.source_id, w.queue_pair, w.rank, any_value(h.span) AS span, any_value(h.middle) AS middle,
           count(*) FILTER (WHERE w.time_ns >= h.middle) AS newer,
           max(w.time_ns) FILTER (WHERE w.time_ns <= h.middle) AS base_ns
    FROM wr_samples w JOIN halves h USING (source_id)
    WHERE w.rank IS NOT NULL AND w.queue_pair IS NOT NULL AND w.error_status IS NULL
    GROUP BY w.source_id, w.queue_pair, w.rank
), moved AS (
    SELECT source_id, queue_pair, rank, any_value(span) AS span, max(completed) - min(completed) AS requests,
           max(completed_bytes) - min(completed_bytes) AS bytes, max(busy_ns) - min(busy_ns) AS busy, max(locator) AS locator,
           max(time_ns) - min(time_ns) AS covered, coalesce(max(completed_bytes), 0) AS total, count(*) AS samples,
           least(1.0, any_value(span) / greatest(max(time_ns) - min(time_ns), 1)) AS part
    FROM wr_samples w JOIN pairs USING (source_id, queue_pair, rank)
    WHERE w.error_status IS NULL AND newer > 0
        AND (time_ns >= middle OR (time_ns = base_ns AND (newer = 1 OR base_ns >= middle - $near * span)))
    GROUP BY source_id, queue_pair, rank
)
SELECT coalesce(q.host, s.host) AS on_host, q.nic, m.rank, [q.communicator, CAST(q.peer AS VARCHAR)],
       CASE WHEN m.samples > 1 THEN m.bytes * m.part END, CAST(m.busy * m.part AS BIGINT), m.span,
       r.line, e.host, e.nic, CAST(m.covered * m.part AS BIGINT), s.path || '#entry=' || m.locator, m.total,
       CASE WHEN m.busy > 0 AND m.bytes >= $bytes * m.requests THEN m.requests ELSE 0 END
FROM moved m JOIN sources s USING (source_id)
JOIN queue_pairs q ON q.source_id = m.source_id AND q.queue_pair = m.queue_pair
LEFT JOIN ends e ON e.source_id = m.source_id AND e.queue_pair = m.queue_pair
LEFT JOIN rates r ON r.host = coalesce(q.host, s.host) AND r.parent = q.nic
WHERE q.nic IS NOT NULL AND coalesce(q.direction, 'send') = 'send' AND on_host IS NOT NULL ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class _Pair:
    """One queue pair that sends: what it did between its samples in the newer half of its log.

    It moved `bytes` in `busy_ns` of work (None where one sample is all there is) and `total` since it was made; `requests` are
    0 where they are small.
    """

    rank: int
    connection: tuple[str | None, ...]
    bytes: float | None
    busy_ns: int
    span_ns: int
    line: float | None
    peer: str | None
    nic: str | None
    covered_ns: int
    source: str
    total: int
    requests: int

    @property
    def order(self) -> tuple[int, str]:
        """The longest at work comes last."""
        return self.busy_ns, self.source


@reduction
def line_uses(connection: DuckDBPyConnection, logs: ShimLogs) -> LineUses:
    """Read what the queue pairs of each NIC sent, and what its port is rated for."""
    asked = {"sources": sorted(source_ids(logs)), "bytes": LEAST_BYTES, "near": _NEAR}
    nics: dict[tuple[str, str], list[_Pair]] = defaultdict(list)
    for host, nic, rank, ends, *rest in connection.execute(_USES, asked).fetchall() if logs else ():
        nics[host, nic].append(_Pair(rank, tuple(ends), *rest))
    found = (_use(*nic, pairs) for nic, pairs in sorted(nics.items()))
    return LineUses(tuple(use for use in found if use is not None))


def _use(host: str, nic: str, pairs: Sequence[_Pair]) -> LineUse | None:
    """None with few large requests, or where of too much of what it sent one sample is all there is."""
    large = [pair for pair in pairs if pair.requests]
    total = sum(pair.total for pair in pairs)
    sampled = sum(pair.total for pair in pairs if pair.bytes is not None) / total if total else 0.0
    if sum(pair.requests for pair in large) < LEAST_REQUESTS or sampled < _LEAST_SAMPLED:
        return None
    connections: dict[tuple[Any, ...], float] = defaultdict(float)
    for pair in (each for each in large if each.requests >= LEAST_REQUESTS):
        connections[pair.rank, *pair.connection] += (pair.bytes or 0) / pair.busy_ns * 1e9
    longest = max(large, key=lambda pair: pair.order)
    together = sum(pair.bytes or 0 for pair in pairs) / sampled / longest.busy_ns * 1e9
    busy = longest.busy_ns / max(longest.span_ns, longest.busy_ns, 1)
    ranks = tuple(sorted({pair.rank for pair in large}))
    peers = tuple(sorted({pair.peer for pair in large if pair.peer is not None}))
    most = longest.busy_ns / max(longest.covered_ns, longest.busy_ns, 1)
    rate = max((together, *connections.values()))
    reached = frozenset((pair.peer, pair.nic) for pair in large if pair.peer is not None and pair.nic is not None)
    return LineUse(host, nic, ranks, rate, busy, longest.line, longest.source, peers, most, reached)
