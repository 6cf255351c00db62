"""Open sends that the process of another rank of the host makes for a rank (PXN), matched with the receive they go to.

The log of that process states neither rank nor communicator of such a send. The queue pair it leaves on is connected to one of
the receiver, whose log has both: a queue pair that leads to one receive only says whose send it is. Calls of a connection move
in order at both of its ends; the oldest open ones are the same call where the receiver has not yet posted all buffers (no later
send can have begun) and the sender has not handed all on (no earlier receive can be through).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.network.flow_ends import FlowEnd
from forensics.rules.reductions.network.flow_states import Key

Connection = tuple[str, int, int, int]
"""Communicator, channel, sender, receiver."""

# A queue pair without a channel has not been seen at work, one that leads to no log ends anywhere: both may carry any of them.
_CONNECTIONS = """
WITH own AS (
    SELECT source_id, queue_pair, nic, remote_nic, remote_queue_pair, channel FROM queue_pairs
    WHERE list_contains($sources, source_id) AND communicator IS NULL AND NOT coalesce(ended, false)
        AND coalesce(direction, 'send') = 'send'
), led AS (
    SELECT q.*, o.communicator, o.rank AS receiver, r.position AS peer, m.rank AS sender FROM own q
    LEFT JOIN queue_pairs o ON o.gid = q.remote_nic AND o.number = try_cast(q.remote_queue_pair AS BIGINT)
        AND NOT coalesce(o.ended, false) AND o.direction = 'recv' AND o.channel = q.channel
        AND list_contains($sources, o.source_id)
    LEFT JOIN members m ON m.communicator = o.communicator AND m.position = o.peer
    LEFT JOIN members r ON r.communicator = o.communicator AND r.rank = o.rank
), known AS (
    SELECT source_id, channel, peer, any_value(communicator) AS communicator, any_value(sender) AS sender,
           any_value(receiver) AS receiver, min(queue_pair) AS queue_pair, min(nic) AS nic, list(remote_nic) AS there
    FROM led WHERE peer IS NOT NULL AND sender IS NOT NULL GROUP BY source_id, channel, peer
    HAVING count(DISTINCT (communicator, sender, receiver)) = 1
)
SELECT k.communicator, k.channel, k.sender, k.receiver, k.source_id, k.peer, k.queue_pair, k.nic FROM known k
JOIN sources a ON a.source_id = k.source_id JOIN rank_logs l ON l.rank = k.sender
JOIN sources b ON b.source_id = l.source_id AND b.host = a.host AND b.rank <> a.rank
WHERE NOT EXISTS (
    FROM led u WHERE u.source_id = k.source_id AND (u.peer IS NULL OR u.sender IS NULL)
        AND coalesce(u.channel, k.channel) = k.channel AND list_contains(k.there, u.remote_nic)
)
"""
_OPEN = """
SELECT c.source_id, c.channel, c.peer, c.rank, c.total, c.posted, c.gpu_ready, c.transmitted, c.done, c.time_ns - c.stuck_ns,
       c.stuck_ns, s.path || '#entry=' || c.locator
FROM chunk_states c JOIN sources s USING (source_id) JOIN flows f USING (source_id, locator)
WHERE list_contains($sources, c.source_id) AND c.locator < 0 AND c.communicator IS NULL AND c.direction = 'send'
    AND c.total > 0 AND c.rank IS NOT NULL AND c.stuck_ns IS NOT NULL
ORDER BY f.start_ns, c.locator DESC
"""


def sends_for_others(
    connection: DuckDBPyConnection, sources: Collection[int], ends: Mapping[Key, Mapping[str, FlowEnd]]
) -> Mapping[Key, FlowEnd]:
    """The sender's end of each flow of `ends` that another process sends; `order` is 0: its log has no call of it."""
    asked = {"sources": sorted(sources)}
    open_sends: dict[tuple[int, int, int], list[tuple[Any, ...]]] = defaultdict(list)
    for source, channel, peer, *counts in connection.execute(_OPEN, asked).fetchall():
        open_sends[source, channel, peer].append(tuple(counts))
    receives = _receives(ends)
    found: dict[Key, FlowEnd] = {}
    for label, channel, sender, receiver, *place, queue_pair, nic in (
        connection.execute(_CONNECTIONS, asked).fetchall() if open_sends and receives else ()
    ):
        own = [_end(sender, counts, queue_pair, nic) for counts in open_sends[place[0], channel, place[1]]]
        found |= _paired(receives.get((label, channel, sender, receiver), ()), own)
    return found


def _receives(ends: Mapping[Key, Mapping[str, FlowEnd]]) -> Mapping[Connection, Sequence[tuple[Key, FlowEnd]]]:
    """Open receives by connection, the oldest first; of messages and collectives on one channel the order is not known."""
    found: dict[Connection, list[tuple[Key, FlowEnd]]] = defaultdict(list)
    for key, known in sorted(ends.items(), key=lambda item: item[0][1]):
        label, _, _, channel, sender, receiver = key
        if "recv" in known:
            found[label, channel, sender, receiver].append((key, known["recv"]))
    return {
        connection: each
        for connection, each in found.items()
        if len({key[2] == "p2p" for key, _ in each}) == 1 and not any("send" in ends[key] for key, _ in each)
    }


def _end(sender: int, counts: tuple[Any, ...], queue_pair: str, nic: str | None) -> FlowEnd:
    by, total, posted, ready, passed, done, since_ns, stuck_ns, source = counts
    steps = (total, posted, ready, passed, done)
    return FlowEnd(sender, *steps, since_ns, stuck_ns, 0, source, queue_pair, nic, sent_by=by)


def _paired(receives: Sequence[tuple[Key, FlowEnd]], sends: Sequence[FlowEnd]) -> dict[Key, FlowEnd]:
    return dict(_in_order(receives, sends)) if receives and sends and _are_one(sends[0], receives[0][1]) else {}


def _are_one(send: FlowEnd, receive: FlowEnd) -> bool:
    return send.total == receive.total and send.passed < send.total and send.passed <= receive.posted < receive.total


def _in_order(receives: Sequence[tuple[Key, FlowEnd]], sends: Sequence[FlowEnd]) -> Iterator[tuple[Key, FlowEnd]]:
    for (key, receive), send in zip(receives, sends, strict=False):
        if send.total != receive.total:
            return
        yield key, send
