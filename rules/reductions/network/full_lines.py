"""Links whose NICs move at a stretch what other NICs do: a queue pair of them that is slow shares the line with another one.

Where two ranks have one NIC, requests of both are served at half of its rate while both have some, and at all of it where they
take turns. The slowest link of a ring has work all the time, so that there they always meet: half of the rate of others then,
with nothing lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set
from statistics import median

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.network.line_peaks import Way, peaks_of_ways
from forensics.rules.reductions.network.slow_ends import Link
from forensics.rules.reductions.ranks.shim_logs import ShimLogs, source_ids

# Of what NICs move at a stretch elsewhere (median): sound ones differ by less.
_AS_FULL = 0.8
# Other ways that tell what is usual.
_LEAST_WAYS = 4

_LINKS = """
SELECT DISTINCT coalesce(q.host, s.host) AS here, q.nic, q.remote_nic, q.rank, o.rank
FROM queue_pairs q JOIN sources s USING (source_id)
LEFT JOIN queue_pairs o ON o.gid = q.remote_nic AND o.number = try_cast(q.remote_queue_pair AS BIGINT)
    AND list_contains($sources, o.source_id)
WHERE list_contains($sources, q.source_id) AND coalesce(q.direction, 'send') = 'send'
    AND here IS NOT NULL AND q.nic IS NOT NULL AND q.remote_nic IS NOT NULL AND q.rank IS NOT NULL
"""


def full_links(connection: DuckDBPyConnection, logs: ShimLogs) -> Set[Link]:
    """Links of several ranks that share their NICs, all of whose ways are as full at a stretch as those of others."""
    ways: dict[Link, set[Way]] = defaultdict(set)
    users: dict[Way, set[int]] = defaultdict(set)
    for *way, sender, receiver in connection.execute(_LINKS, {"sources": sorted(source_ids(logs))}).fetchall():
        ways[sender, receiver].add((way[0], way[1], way[2]))
        users[way[0], way[1], way[2]].add(sender)
    peaks = peaks_of_ways(connection, logs) if any(len(ranks) > 1 for ranks in users.values()) else {}
    if len(peaks) <= _LEAST_WAYS:
        return frozenset()
    least = _AS_FULL * median(peaks.values())
    full = {way for way, ranks in users.items() if len(ranks) > 1 and peaks.get(way, 0.0) >= least}
    return frozenset(link for link, found in ways.items() if found <= full)
