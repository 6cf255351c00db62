"""Flows of chunks that ended, with the time their buffers spent in each state: what slowness is distinguished from.

A flow moves its chunks through at most eight buffers (NCCL_STEPS). A shim log sums up, over all chunks of a flow, how long a
buffer waited for its GPU, for credit, at the NIC (sender), for the wire, for the flush, to be consumed (receiver). Divided by
the buffers in use, the sums of one end add up to about the length of the flow: time of a buffer, comparable between flows of
one structure, and free of any clock but the rank's own.

Only a window of each log is looked at where one is given: rows of a log lie in the order of time, so that the store passes over
those outside of it (zone maps), whatever the length of the history.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.network.exchanges import EXCHANGE, EXCHANGES
from forensics.rules.reductions.network.flow_ends import WINDOW

# Numbers of a communicator with collectives and messages differ from member to member: its collectives are not matched.
_ENDED = f"""
WITH looked AS (
    SELECT unnest($sources) AS source_id, unnest($begins) AS begin_ns, unnest($ends) AS end_ns
), ended AS (
    SELECT f.source_id, f.locator, f.communicator, f.sequence, f.bytes, f.start_ns, f.end_ns
    FROM flows f JOIN looked w ON w.source_id = f.source_id AND f.end_ns BETWEEN w.begin_ns AND w.end_ns
    WHERE f.end_ns BETWEEN $first AND $last AND f.end_ns >= f.start_ns AND f.locator >= 0
), oldest AS (
    SELECT source_id, communicator, min(sequence) AS op_id FROM ended GROUP BY ALL
), calls AS (
    SELECT o.source_id, o.communicator, o.op_id, any_value(o.kind) AS call, any_value(coalesce(o.is_p2p, false)) AS paired,
           any_value(o.pair_number) AS pair_number, any_value(o.peer) AS peer, any_value(o.group_call) AS group_call
    FROM operations o JOIN oldest n ON n.source_id = o.source_id AND n.communicator = o.communicator AND o.op_id >= n.op_id
    WHERE o.op_id > 0 GROUP BY o.source_id, o.communicator, o.op_id
), mixed AS (
    SELECT communicator, bool_or(coalesce(is_p2p, false)) AND NOT bool_and(coalesce(is_p2p, false)) AS mixed FROM operations
    WHERE list_contains($sources, source_id) AND op_id > 0 GROUP BY communicator
), {EXCHANGES}
SELECT c.source_id, c.locator, c.communicator, c.rank, p.rank AS other, m.position, c.peer,
       CASE WHEN g.method = 'peers' THEN t.size ELSE g.size END AS size, c.channel,
       c.direction = 'send' AS sends, o.group_call,
       CASE WHEN NOT o.paired THEN o.call WHEN e.communicator IS NULL THEN 'p2p' ELSE '{EXCHANGE}' END AS kind,
       CASE WHEN o.paired THEN coalesce(c.pair_number, o.pair_number) WHEN NOT x.mixed THEN o.op_id END AS number,
       c.total, f.bytes, f.start_ns, f.end_ns, f.end_ns - f.start_ns AS took_ns, least({WINDOW}, c.total) AS buffers,
       c.wait_gpu_ns / buffers AS gpu_ns, c.wait_credit_ns / buffers AS credit_ns, c.wait_nic_ns / buffers AS nic_ns,
       c.wait_wire_ns / buffers AS wire_ns, c.wait_consume_ns / buffers AS consume_ns
FROM ended f JOIN chunk_states c ON f.source_id = c.source_id AND f.locator = c.locator
JOIN calls o ON o.source_id = c.source_id AND o.communicator = c.communicator AND o.op_id = c.sequence
JOIN mixed x ON x.communicator = c.communicator
JOIN communicators g ON g.communicator = c.communicator
LEFT JOIN exchanges e ON e.communicator = c.communicator
LEFT JOIN (SELECT communicator, max(size) AS size FROM communicator_states GROUP BY communicator) t
    ON t.communicator = c.communicator
JOIN members p ON p.communicator = c.communicator AND p.position = c.peer
JOIN members m ON m.communicator = c.communicator AND m.rank = c.rank
WHERE c.total > 0 AND p.rank <> c.rank
    AND coalesce(c.wait_nic_ns, c.wait_wire_ns) IS NOT NULL
    AND (NOT o.paired OR c.pair_number IS NOT NULL OR (o.peer = c.peer AND o.call = c.direction))
"""


Windows = Mapping[int, tuple[int, int]]
"""Begin and end of what to look at, by source, ns on the clock of its host."""
# Of the busiest log, where the operations have no rhythm: more of them tell nothing else.
_MOST_FLOWS = 1 << 15
# Times of 64 bits.
ALWAYS = -(1 << 62), 1 << 62


def show_ended_flows(connection: DuckDBPyConnection, sources: Collection[int], windows: Windows | None = None) -> int:
    """Make the temporary table `ended_flows` of the given logs; returns its rows.

    `rank` is the end whose log it is, `other` the rank at the far end, `kind` the collective or `p2p` (messages of an exchange
    are of an `all_to_all`, and `group_call` tells those of one call); `number` is the same at both ends, null where it cannot
    be; the waits are ns of a buffer. `size` counts members that left nothing too, for one of them may be the last; null where
    no log tells it.
    """
    connection.execute(f"CREATE OR REPLACE TEMP TABLE ended_flows AS {_ENDED}", _asked(sorted(sources), windows or {}))
    ((rows,),) = connection.execute("SELECT count(*) FROM ended_flows").fetchall()
    return int(rows)


_BUSIEST = """
SELECT source_id, end_ns FROM flows WHERE list_contains($sources, source_id) AND end_ns IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY source_id ORDER BY end_ns DESC) = $most
"""


def busiest(connection: DuckDBPyConnection, sources: Collection[int], most: int = _MOST_FLOWS) -> Mapping[int, int]:
    """When the newest `most` flows of a log begin to end (ns on the clock of its host); logs of fewer are absent."""
    asked = {"sources": sorted(sources), "most": most}
    return dict(connection.execute(_BUSIEST, asked).fetchall())


def _asked(sources: list[int], windows: Windows) -> dict[str, Any]:
    found = [windows.get(source, ALWAYS) for source in sources]
    begins, ends = [begin for begin, _ in found], [end for _, end in found]
    return {
        "sources": sources,
        "begins": begins,
        "ends": ends,
        "first": min(begins, default=ALWAYS[0]),
        "last": max(ends, default=ALWAYS[1]),
    }
