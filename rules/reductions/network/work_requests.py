"""Queue pairs in trouble: the first work request that failed, and requests that the NIC has not completed for long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.shim_logs import ShimLogs, source_ids

# A healthy request takes milliseconds at most; NCCL's retries give up after about 30 s.
LEAST_AGE_NS = 1_000_000_000
FLUSHED = 5
"""ibv_wc_status of requests behind the one that failed: no fault of their own."""
STATUS_NAMES = {
    1: "local length error",
    2: "local queue pair operation error",
    4: "local protection error",
    5: "flushed behind another error",
    6: "memory window bind error",
    7: "bad response",
    8: "local access error",
    9: "remote invalid request",
    10: "remote access error",
    11: "remote operation error",
    12: "transport retry counter exceeded: the other end did not acknowledge",
    13: "receiver-not-ready retry counter exceeded: the other end posted no receive",
    14: "local RDD violation",
    15: "remote invalid RD request",
    16: "remote aborted",
    21: "response timeout",
    22: "general error",
}
"""ibv_wc_status of rdma-core, libibverbs/verbs.h, in words."""
NETWORK_STATUS = frozenset({12, 13, 21})
"""Statuses that say that the network, or the other end, did not answer; the others are about the request itself."""


@dataclass(frozen=True, slots=True)
class QueuePair:
    """One queue pair of one rank that failed or has old requests; `peer` is the rank at its other end, when that is known.

    `age_ns` is the age of the oldest signaled request in flight, None without one; times on the clock of the host.
    `communicator`, `channel`, `direction` are those of the one flow that it carries, None where that is not known.
    """

    rank: int
    name: str
    nic: str | None
    port: int | None
    peer: int | None
    remote: str | None
    in_flight: int
    age_ns: int | None
    status: int | None
    vendor_error: int | None
    error_ns: int | None
    source: str
    communicator: str | None = None
    channel: int | None = None
    direction: str | None = None


QueuePairs = NewType("QueuePairs", tuple[QueuePair, ...])
"""Queue pairs in trouble."""

# The other end has the address and the number that this end was connected to; more than one such end is none.
_TROUBLED = """
WITH now AS (
    SELECT * FROM wr_samples WHERE locator < 0 AND list_contains($sources, source_id)
        AND (error_status IS NOT NULL OR oldest_ns >= $age)
), ends AS (
    SELECT q.source_id, q.queue_pair, any_value(o.rank) AS peer
    FROM queue_pairs q JOIN queue_pairs o
        ON o.gid = q.remote_nic AND o.number = try_cast(q.remote_queue_pair AS BIGINT) AND NOT coalesce(o.ended, false)
    WHERE list_contains($sources, q.source_id) AND list_contains($sources, o.source_id)
    GROUP BY q.source_id, q.queue_pair HAVING count(DISTINCT o.rank) = 1
)
SELECT n.rank, n.queue_pair, q.nic, q.port, e.peer, q.remote_nic, n.in_flight, n.oldest_ns, n.error_status, n.vendor_error,
       n.error_ns, s.path || '#entry=' || n.locator, q.communicator, q.channel, q.direction
FROM now n JOIN sources s USING (source_id)
JOIN queue_pairs q ON q.source_id = n.source_id AND q.queue_pair = n.queue_pair
LEFT JOIN ends e ON e.source_id = n.source_id AND e.queue_pair = n.queue_pair
WHERE n.rank IS NOT NULL ORDER BY ALL
"""


@reduction
def troubled_pairs(connection: DuckDBPyConnection, logs: ShimLogs) -> QueuePairs:
    """Queue pairs with an error or an old request, in rank order."""
    asked = {"sources": source_ids(logs), "age": LEAST_AGE_NS}
    rows = connection.execute(_TROUBLED, asked).fetchall() if logs else ()
    return QueuePairs(tuple(QueuePair(*row) for row in rows))
