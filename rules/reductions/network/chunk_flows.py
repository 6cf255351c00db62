"""Where the chunks of open collectives stopped: both ends of every flow, and which of them waits for nobody else.

One flow is a channel of one operation from a sender to a receiver. The sender counts steps that its GPU has produced, that were
handed to the NIC after the receiver gave credit, and that the NIC completed; the receiver counts steps it posted, that arrived,
and that its GPU consumed (Mycroft section 5, Table 4; there from the sender alone). A flow that a shim log shows open is
matched with its other end by communicator, channel, ranks and number; a rank whose log does not show steps says nothing. Where
the receiver left no log at all, the sender's queue pair tells the side: requests that age in flight are with the NICs, none in
flight while chunks wait for credit are with the receiver.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.network.work_requests import LEAST_AGE_NS
from forensics.rules.reductions.ranks.shim_logs import ShimLogs, source_ids

# Steps of a connection that may be on their way at once (NCCL_STEPS).
WINDOW = 8


class FlowState(StrEnum):
    """Why a flow does not move."""

    NOT_DELIVERED = "not_delivered"
    CREDIT_LOST = "credit_lost"
    NO_CREDIT = "no_credit"
    NOT_STARTED = "not_started"
    GPU_NOT_READY = "gpu_not_ready"
    NOT_CONSUMED = "not_consumed"
    NOT_ENTERED = "not_entered"
    NOT_ACKNOWLEDGED = "not_acknowledged"
    RECEIVER_SIDE = "receiver_side"
    UNKNOWN = "unknown"


NETWORK = frozenset({FlowState.NOT_DELIVERED, FlowState.CREDIT_LOST, FlowState.NOT_ACKNOWLEDGED})
"""States that the network between the two ranks, or a NIC of them, must answer for."""


@dataclass(frozen=True, slots=True)
class FlowEnd:
    """One end as its log stood last; steps counted from 0. `order` is the place of the call among all of its process.

    Of a sender `ready` were produced by its GPU, `passed` handed to the NIC, `done` completed; of a receiver `ready` arrived,
    `passed` are visible to its GPU, `done` consumed. `queue_pair` is the one that it was seen on, with its `nic`, where known;
    `in_flight` are signaled requests of all its queue pairs, the oldest of them `oldest_ns` old, None where that is not known.
    `samples` are earlier ones that show the same counts.
    """

    rank: int
    total: int
    posted: int
    ready: int
    passed: int
    done: int
    since_ns: int
    stuck_ns: int
    order: int
    source: str
    queue_pair: str | None = None
    nic: str | None = None
    samples: int = 0
    in_flight: int | None = None
    oldest_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow that at least one end shows open; an end is None when its rank does not show it."""

    communicator: str
    number: int
    kind: str
    channel: int
    sender: int
    receiver: int
    send: FlowEnd | None
    receive: FlowEnd | None
    state: FlowState

    @property
    def ends(self) -> tuple[FlowEnd, ...]:
        """Ends that are known, the sender first."""
        return tuple(end for end in (self.send, self.receive) if end is not None)

    @property
    def holder(self) -> int | None:
        """Rank whose part it is to move it on; None for the network between the ranks, or when nothing tells."""
        if self.state in (FlowState.NO_CREDIT, FlowState.NOT_CONSUMED, FlowState.RECEIVER_SIDE):
            return self.receiver
        if self.state is FlowState.GPU_NOT_READY:
            return self.sender
        if self.state in (FlowState.NOT_STARTED, FlowState.NOT_ENTERED):
            return self.sender if self.send is None else self.receiver
        return None

    def comes_behind(self, other: Flow) -> bool:
        """Whether it is of a later call of the same communicator, between the same ranks in the same direction and channel."""
        way = (self.communicator, self.channel, self.sender, self.receiver)
        return self.number > other.number and way == (other.communicator, other.channel, other.sender, other.receiver)

    def order_at(self, rank: int) -> int | None:
        """Place of its call in the process of `rank`."""
        return next((end.order for end in self.ends if end.rank == rank), None)


_OPEN = """
WITH steps AS (
    SELECT source_id FROM chunk_states GROUP BY source_id HAVING max(posted) > 0
), calls AS (
    SELECT source_id, communicator, op_id, any_value(kind) AS kind, any_value(coalesce(is_p2p, false)) AS paired,
           any_value(CASE WHEN is_p2p THEN pair_number ELSE sequence END) AS number,
           any_value(coalesce(record_id, locator)) AS place, any_value(peer) AS peer
    FROM {calls} WHERE op_id IS NOT NULL GROUP BY source_id, communicator, op_id
), carried AS (
    SELECT q.source_id, q.communicator, q.channel, q.direction, q.peer, sum(w.in_flight)::BIGINT AS in_flight,
           max(w.oldest_ns) AS oldest_ns
    FROM queue_pairs q JOIN wr_samples w ON w.source_id = q.source_id AND w.queue_pair = q.queue_pair AND w.locator < 0
    WHERE NOT coalesce(q.ended, false) AND q.communicator IS NOT NULL GROUP BY ALL HAVING bool_and(w.in_flight IS NOT NULL)
), open AS (
    SELECT * FROM chunk_states WHERE locator < 0
), looks AS (
    SELECT o.source_id, o.locator, count(*) AS samples FROM open o JOIN chunk_states h ON h.locator >= 0
        AND h.source_id = o.source_id AND h.communicator = o.communicator AND h.sequence = o.sequence AND h.channel = o.channel
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
_STEPPED = "SELECT DISTINCT rank FROM chunk_states WHERE list_contains($sources, source_id) AND posted > 0 AND rank IS NOT NULL"

# With PXN another process of the host sends, and its log does not say for which communicator.
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

_Key = tuple[str, int, str, int, int, int]
"""Communicator, number, kind of collective or `p2p`, channel, sender, receiver."""


OpenFlows = NewType("OpenFlows", tuple[Flow, ...])
"""Flows of chunks that at least one end shows open."""


@reduction
def chunk_flows(calls: Calls, logs: ShimLogs) -> OpenFlows:
    """All open flows, in key order."""
    if not logs:
        return OpenFlows(())
    connection, sources = calls.connection, source_ids(logs)
    table = "latest_call" if calls.logged else "operations"
    ends: dict[_Key, dict[str, FlowEnd]] = {}
    for label, rank, channel, other, direction, number, kind, *counters in connection.execute(
        _OPEN.format(calls=table), {"sources": sorted(sources)}
    ).fetchall():
        pair = (rank, other) if direction == "send" else (other, rank)
        name = "p2p" if kind in ("send", "recv") else kind
        ends.setdefault((label, number, name, channel, *pair), {})[direction] = FlowEnd(rank, *counters)
    reached = _reached(connection, table, sources, frozenset(logs))
    return OpenFlows(tuple(_flow(key, found, reached) for key, found in sorted(ends.items())))


@dataclass(frozen=True, slots=True)
class _Reached:
    """Highest number that a rank entered and finished in a communicator, ranks whose logs show steps, and ranks with a log.

    `sent_on` are senders, receivers and channels for which a process of the sender's host sends to that place for another one.
    """

    entered: Mapping[tuple[str, int, str, int], tuple[int, int]]
    stepped: frozenset[int]
    logged: frozenset[int]
    sent_on: frozenset[tuple[str, int, int, int]] = frozenset()


def _reached(connection: DuckDBPyConnection, table: str, sources: Collection[int], logged: frozenset[int]) -> _Reached:
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
    return _Reached(entered, stepped, logged, frozenset(connection.execute(_SENT_ON, asked).fetchall()))


def _flow(key: _Key, ends: Mapping[str, FlowEnd], reached: _Reached) -> Flow:
    label, number, kind, channel, sender, receiver = key
    send, receive = ends.get("send"), ends.get("recv")
    state = _both(send, receive) if send and receive else _one_sided(key, send, receive, reached)
    return Flow(label, number, kind, channel, sender, receiver, send, receive, state)


def _both(send: FlowEnd, receive: FlowEnd) -> FlowState:
    """Judge a flow whose ends are both known, from the sender on; ends of different length are of calls that do not match."""
    if send.total != receive.total:
        return FlowState.UNKNOWN
    if send.done < send.passed:
        return FlowState.NOT_DELIVERED
    if send.passed < send.ready:
        return _credit(send, receive)
    if receive.ready < send.done:
        return FlowState.NOT_DELIVERED
    if receive.done < receive.ready:
        return FlowState.NOT_CONSUMED
    # An interface that cannot tell the two waits shows a missing credit as a GPU that is not ready: the receiver knows.
    if receive.posted <= send.passed and receive.posted < receive.total:
        return FlowState.NO_CREDIT
    return FlowState.GPU_NOT_READY if send.passed < send.total else FlowState.UNKNOWN


def _credit(send: FlowEnd, receive: FlowEnd) -> FlowState:
    if receive.posted > send.passed:
        return FlowState.CREDIT_LOST
    full = receive.posted - receive.done >= WINDOW
    return FlowState.NOT_CONSUMED if full and receive.done < receive.ready else FlowState.NO_CREDIT


def _one_sided(key: _Key, send: FlowEnd | None, receive: FlowEnd | None, reached: _Reached) -> FlowState:
    """Judge a flow of which one end is not open: not entered yet, not begun, or through with it."""
    label, number, kind, _, sender, receiver = key
    silent, other = (receiver, sender) if send else (sender, receiver)
    if silent not in reached.logged:
        return _sender_alone(send) if send and kind != "p2p" else FlowState.UNKNOWN
    name = ("" if kind != "p2p" else "recv" if send else "send", other if kind == "p2p" else -1)
    entered, done = reached.entered.get((label, silent, *name), (0, 0))
    if entered < number:
        return FlowState.NOT_ENTERED
    if silent not in reached.stepped or (silent == sender and (label, sender, receiver, key[3]) in reached.sent_on):
        return FlowState.UNKNOWN
    if done >= number:
        return _through(send, receive)
    return FlowState.NOT_STARTED


def _sender_alone(send: FlowEnd) -> FlowState:
    """Judge by the queue pair of a sender whose receiver left no log: a side, and no cause."""
    if send.in_flight is None or (send.passed == send.ready and send.done == send.passed):
        return FlowState.UNKNOWN
    if send.in_flight:
        return FlowState.NOT_ACKNOWLEDGED if (send.oldest_ns or 0) >= LEAST_AGE_NS else FlowState.UNKNOWN
    return FlowState.RECEIVER_SIDE if send.done == send.passed < send.ready else FlowState.UNKNOWN


def _through(send: FlowEnd | None, receive: FlowEnd | None) -> FlowState:
    """Judge by the end that is left when the other one is through: a receiver that waits for more was promised more."""
    if send:
        return FlowState.NOT_DELIVERED if send.done < send.passed else FlowState.UNKNOWN
    if receive and receive.ready < receive.posted:
        return FlowState.UNKNOWN
    return FlowState.NOT_CONSUMED if receive and receive.done < receive.ready else FlowState.UNKNOWN
