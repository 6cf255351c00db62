"""Where the chunks of open collectives stopped: both ends of every flow, and which of them waits for nobody else.

One flow is a channel of one operation from a sender to a receiver. The sender counts steps that its GPU has produced, that were
handed to the NIC after the receiver gave credit, and that the NIC completed; the receiver counts steps it posted, that arrived,
and that its GPU consumed (Mycroft section 5, Table 4; there from the sender alone). A flow that a shim log shows open is
matched with its other end by communicator, channel, ranks and number; a rank whose log does not show steps says nothing. Where
the receiver left no log at all, the sender's queue pair shows the side: requests that age in flight are with the NICs, none in
flight while chunks wait for credit are with the receiver. Of a communicator that was aborted the newest samples of what was not
done count: NCCL ends its proxy operations then, and where they stood is in no state page any more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NewType

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.network.flow_ends import Flow, FlowEnd
from forensics.rules.reductions.network.flow_states import Key, Reached, judged, unseen_place
from forensics.rules.reductions.network.sends_for_others import sends_for_others
from forensics.rules.reductions.ranks.shim_logs import ShimLogs, source_ids

# Calls without a number in the process have the order of their times: each thread has its own part of a log. Most calls of a
# job are of no open flow: they are not grouped.
_OPEN = """
WITH steps AS (
    SELECT source_id FROM chunk_states GROUP BY source_id HAVING max(posted) > 0
), asked AS (
    SELECT source_id, communicator, sequence AS op_id FROM chunk_states WHERE locator < 0
    UNION ALL SELECT source_id, communicator, c.sequence FROM chunk_states c
    JOIN communicator_states s USING (source_id, communicator) WHERE s.state = 'aborted'
), calls AS (
    SELECT source_id, communicator, op_id, any_value(kind) AS kind, any_value(coalesce(is_p2p, false)) AS paired,
           any_value(CASE WHEN is_p2p THEN pair_number ELSE sequence END) AS number,
           any_value(coalesce(record_id, entered_ns, locator)) AS place, any_value(peer) AS peer,
           bool_or(state = 'done') AS is_done
    FROM {calls} SEMI JOIN asked USING (source_id, communicator, op_id) GROUP BY source_id, communicator, op_id
), carried AS (
    SELECT q.source_id, q.communicator, q.channel, q.direction, q.peer, sum(w.in_flight)::BIGINT AS in_flight,
           max(w.oldest_ns) AS oldest_ns
    FROM queue_pairs q JOIN wr_samples w ON w.source_id = q.source_id AND w.queue_pair = q.queue_pair AND w.locator < 0
    WHERE NOT coalesce(q.ended, false) AND q.communicator IS NOT NULL GROUP BY ALL HAVING bool_and(w.in_flight IS NOT NULL)
), aborted AS (
    SELECT c.* FROM chunk_states c JOIN communicator_states s USING (source_id, communicator)
    JOIN calls o ON o.source_id = c.source_id AND o.communicator = c.communicator AND o.op_id = c.sequence
    WHERE s.state = 'aborted' AND NOT o.is_done
    QUALIFY 1 = row_number() OVER (PARTITION BY c.source_id, c.communicator, c.sequence, c.channel, c.peer, c.direction
                                   ORDER BY c.locator < 0 DESC, c.locator DESC)
), open AS (
    SELECT * FROM chunk_states WHERE locator < 0
    UNION ALL SELECT * FROM aborted WHERE locator >= 0 AND coalesce(done, consumed) < total
), looks AS (
    SELECT o.source_id, o.locator, count(*) AS samples FROM open o JOIN chunk_states h ON h.locator >= 0
        AND h.locator <> o.locator AND h.source_id = o.source_id AND h.communicator = o.communicator
        AND h.sequence = o.sequence AND h.channel = o.channel
        AND h.peer = o.peer AND h.direction = o.direction AND h.total = o.total AND h.posted = o.posted
        AND coalesce(h.gpu_ready, h.received) = coalesce(o.gpu_ready, o.received)
        AND coalesce(h.transmitted, h.flushed) = coalesce(o.transmitted, o.flushed)
        AND coalesce(h.done, h.consumed) = coalesce(o.done, o.consumed)
    GROUP BY o.source_id, o.locator
)
SELECT c.communicator, c.rank, c.channel, p.rank, c.direction,
       CASE WHEN o.paired THEN coalesce(c.pair_number, o.number) ELSE o.number END, o.kind, c.total, c.posted,
       coalesce(c.gpu_ready, c.received), coalesce(c.transmitted, c.flushed), coalesce(c.done, c.consumed),
       c.time_ns - c.stuck_ns, c.stuck_ns, o.place, s.path || '#entry=' || c.locator,
       f.queue_pair, f.local_nic, coalesce(l.samples, 0), k.in_flight, k.oldest_ns
FROM open c JOIN sources s USING (source_id) JOIN steps USING (source_id)
JOIN calls o ON o.source_id = c.source_id AND o.communicator = c.communicator AND o.op_id = c.sequence
JOIN members p ON p.communicator = c.communicator AND p.position = c.peer
LEFT JOIN flows f ON f.source_id = c.source_id AND f.locator = c.locator
LEFT JOIN looks l ON l.source_id = c.source_id AND l.locator = c.locator
LEFT JOIN carried k ON k.source_id = c.source_id AND k.communicator = c.communicator AND k.channel = c.channel
    AND k.direction = c.direction AND k.peer = c.peer
WHERE list_contains($sources, c.source_id) AND o.number IS NOT NULL AND c.total > 0
    AND c.rank IS NOT NULL AND p.rank <> c.rank AND c.stuck_ns IS NOT NULL
    AND (NOT o.paired OR c.pair_number IS NOT NULL OR (o.peer = c.peer AND o.kind = c.direction))
ORDER BY ALL
"""
_ENTERED = """
SELECT communicator, rank, kind, coalesce(peer, -1), max(CASE WHEN is_p2p THEN pair_number ELSE sequence END),
       max(CASE WHEN is_p2p THEN pair_number ELSE sequence END) FILTER (state = 'done')
FROM {calls} WHERE list_contains($sources, source_id) AND communicator IS NOT NULL
GROUP BY communicator, rank, kind, coalesce(peer, -1)
"""
_PLACES = """
SELECT c.communicator, c.number, c.rank, c.kind, c.paired, p.rank, min(c.place) FROM (
    SELECT communicator, rank, kind, coalesce(is_p2p, false) AS paired, peer, coalesce(record_id, entered_ns, locator) AS place,
           CASE WHEN is_p2p THEN pair_number ELSE sequence END AS number
    FROM {calls} WHERE list_contains($sources, source_id) AND communicator IS NOT NULL
) c LEFT JOIN members p ON p.communicator = c.communicator AND p.position = c.peer
WHERE list_contains($numbers, c.number) AND c.place IS NOT NULL GROUP BY ALL
"""
# Ends that are through with a call of which another end is open. Most calls of a job are of no flow that is kept: they are not
# grouped.
_ENDED = """
WITH calls AS (
    SELECT source_id, communicator, op_id, any_value(kind) AS kind, any_value(coalesce(is_p2p, false)) AS paired,
           any_value(CASE WHEN is_p2p THEN pair_number ELSE sequence END) AS number
    FROM {calls} SEMI JOIN (
        SELECT source_id, communicator, sequence AS op_id FROM chunk_states
        UNION ALL SELECT source_id, communicator, sequence FROM flows
    ) USING (source_id, communicator, op_id) GROUP BY source_id, communicator, op_id
), open AS (
    SELECT DISTINCT o.communicator, o.number, o.kind FROM chunk_states c
    JOIN calls o ON o.source_id = c.source_id AND o.communicator = c.communicator AND o.op_id = c.sequence
    WHERE c.locator < 0 AND NOT o.paired
)
SELECT o.communicator, o.number, o.kind, c.channel, l.rank, p.rank, c.direction, c.total
FROM open JOIN calls o ON o.communicator = open.communicator AND o.number = open.number AND o.kind = open.kind
JOIN rank_logs l ON l.source_id = o.source_id
JOIN flows f ON f.source_id = o.source_id AND f.communicator = o.communicator AND f.sequence = o.op_id AND f.locator >= 0
JOIN chunk_states c ON c.source_id = f.source_id AND c.locator = f.locator
JOIN members p ON p.communicator = c.communicator AND p.position = c.peer
WHERE list_contains($sources, f.source_id)
"""
_STEPPED = "SELECT DISTINCT rank FROM chunk_states WHERE list_contains($sources, source_id) AND posted > 0 AND rank IS NOT NULL"

# With PXN another process of the host sends, and its log does not say for which communicator: some are not found again.
_SENT_ON = """
WITH others AS (
    SELECT DISTINCT s.rank AS of_rank, s.host, c.channel, c.peer FROM (
        SELECT source_id, communicator, direction, channel, peer FROM chunk_states
        UNION SELECT source_id, communicator, direction, channel, peer FROM flows
    ) c JOIN sources s USING (source_id)
    WHERE list_contains($sources, c.source_id) AND c.communicator IS NULL AND c.direction = 'send' AND s.host IS NOT NULL
)
SELECT DISTINCT m.communicator, m.rank, p.rank, o.channel
FROM others o JOIN sources l ON l.host = o.host AND l.rank IS NOT NULL AND l.rank <> o.of_rank
JOIN members m ON m.rank = l.rank JOIN members p ON p.communicator = m.communicator AND p.position = o.peer
"""

OpenFlows = NewType("OpenFlows", tuple[Flow, ...])
"""Flows of chunks that at least one end shows open."""


@reduction
def chunk_flows(calls: Calls, logs: ShimLogs) -> OpenFlows:
    """All open flows, in key order."""
    if not logs:
        return OpenFlows(())
    connection, sources = calls.connection, source_ids(logs)
    table = calls.table
    ends: dict[Key, dict[str, FlowEnd]] = {}
    for label, rank, channel, other, direction, number, kind, *counters in connection.execute(
        _OPEN.format(calls=table), {"sources": sorted(sources)}
    ).fetchall():
        pair = (rank, other) if direction == "send" else (other, rank)
        name = "p2p" if kind in ("send", "recv") else kind
        ends.setdefault((label, number, name, channel, *pair), {})[direction] = FlowEnd(rank, *counters)
    reached = replace(_reached(connection, table, sources, frozenset(logs)), places=_places(connection, table, sources, ends))
    for key, end in sends_for_others(connection, sources, ends).items():
        if (place := unseen_place(key, ends[key], reached)) is not None:
            ends[key]["send"] = replace(end, order=place)
    return OpenFlows(judged(ends, reached))


def _reached(connection: DuckDBPyConnection, table: str, sources: Collection[int], logged: frozenset[int]) -> Reached:
    asked = {"sources": sorted(sources)}
    members = connection.execute("SELECT communicator, position, rank FROM members").fetchall()
    places = {(label, position): rank for label, position, rank in members}
    entered: dict[tuple[str, int, str, int], tuple[int, int]] = {}
    for label, rank, kind, peer, last, done in connection.execute(_ENTERED.format(calls=table), asked).fetchall():
        paired = kind in ("send", "recv")
        key = (label, rank, kind if paired else "", places.get((label, peer), -1) if paired else -1)
        before = entered.get(key, (0, 0))
        entered[key] = (max(before[0], last or 0), max(before[1], done or 0))
    stepped = frozenset(rank for (rank,) in connection.execute(_STEPPED, asked).fetchall())
    sent_on = frozenset(connection.execute(_SENT_ON, asked).fetchall())
    return Reached(entered, stepped, logged, sent_on, _ended(connection, table, asked))


def _places(
    connection: DuckDBPyConnection, table: str, sources: Collection[int], ends: Mapping[Key, Mapping[str, FlowEnd]]
) -> Mapping[tuple[str, int, int, str, int], int]:
    """Places of calls with the numbers of flows of which one end is not known."""
    numbers = sorted({key[1] for key, known in ends.items() if len(known) < 2})
    asked = {"sources": sorted(sources), "numbers": numbers}
    found = connection.execute(_PLACES.format(calls=table), asked).fetchall() if numbers else []
    return {
        (label, number, rank, *((kind, -1 if peer is None else peer) if paired else ("", -1))): place
        for label, number, rank, kind, paired, peer, place in found
    }


def _ended(connection: DuckDBPyConnection, table: str, asked: Mapping[str, Any]) -> Mapping[tuple[Key, str], int]:
    """Steps of the ends of flows that are through, by flow and direction."""
    found = connection.execute(_ENDED.format(calls=table), asked).fetchall()
    return {
        ((label, number, kind, channel, *((rank, peer) if direction == "send" else (peer, rank))), direction): total
        for label, number, kind, channel, rank, peer, direction, total in found
    }
