"""Who comes late to an exchange among equals (all_to_all), where each member waits for each other by itself (Mycroft 5.2).

A message takes as long as its size asks, and sizes differ: what a member waits in the exchange does not tell who was late. Both
ends of one message do, each on its own clock: they end together, so that the end that took longer began sooner, by as much. A
sender whose GPU has not produced what the receiver waits for is late as well, however early its host called, and so is a
receiver whose GPU leaves the sender without credit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.network.awaited_calls import AwaitedCall
from forensics.rules.reductions.network.exchanges import EXCHANGE

Times = npt.NDArray[np.float64]

# Of one group of messages, or one call, at both ends: where a message of no bytes was left out, numbers go apart.
_MESSAGES = f"""
WITH messages AS (
    SELECT communicator, number, CASE WHEN sends THEN rank ELSE other END AS sender,
           CASE WHEN sends THEN other ELSE rank END AS receiver, any_value(size) AS size,
           max(took_ns) FILTER (sends) AS sent_ns, max(took_ns) FILTER (NOT sends) AS got_ns,
           max(gpu_ns) FILTER (sends) AS gpu_ns, max(credit_ns) FILTER (sends) AS credit_ns,
           max(wire_ns) FILTER (NOT sends) AS wire_ns,
           max(consume_ns) FILTER (NOT sends) AS held_ns, max(end_ns) FILTER (sends) AS sent_at,
           max(end_ns) FILTER (NOT sends) AS got_at, sum(bytes) FILTER (sends) AS bytes,
           any_value(group_call) FILTER (sends) AS sent_in, any_value(group_call) FILTER (NOT sends) AS got_in,
           min(source_id) FILTER (sends) AS source_id, min(locator) FILTER (sends) AS locator
    FROM ended_flows WHERE kind = '{EXCHANGE}' AND number IS NOT NULL GROUP BY ALL
), alike AS (
    SELECT *, count(DISTINCT sent_in) OVER (PARTITION BY communicator, number, sender) AS calls_of_sender,
           count(DISTINCT got_in) OVER (PARTITION BY communicator, number, receiver) AS calls_of_receiver
    FROM messages WHERE sent_ns IS NOT NULL AND got_ns IS NOT NULL
)
SELECT m.communicator, m.number, m.size, m.sender, m.receiver, m.sent_ns, m.got_ns, coalesce(m.gpu_ns, 0),
       coalesce(m.credit_ns, m.sent_ns), coalesce(m.wire_ns, 0), coalesce(m.held_ns, 0),
       m.sent_at, m.got_at, m.bytes, s.path || '#entry=' || m.locator
FROM alike m JOIN sources s USING (source_id) WHERE calls_of_sender <= 1 AND calls_of_receiver <= 1
ORDER BY m.communicator, m.number, m.sender, m.receiver
"""


@dataclass(frozen=True, slots=True)
class _Message:
    """One message of an exchange as both ends saw it, ns: how long either was in it, and what its buffers waited for."""

    sender: int
    receiver: int
    sent_ns: float
    got_ns: float
    gpu_ns: float
    credit_ns: float
    wire_ns: float
    held_ns: float
    sent_at: int
    got_at: int
    bytes: float
    source: str


def exchange_calls(connection: DuckDBPyConnection) -> dict[tuple[str, str], Sequence[AwaitedCall]]:
    """Exchanges in `ended_flows` that all members saw, by communicator; the same pairs of them exchange in each."""
    found: dict[str, dict[int, list[_Message]]] = defaultdict(lambda: defaultdict(list))
    sizes: dict[str, int | None] = {}
    for communicator, number, size, *row in connection.execute(_MESSAGES).fetchall():
        found[communicator][number].append(_Message(*row))
        sizes[communicator] = size
    return {(name, EXCHANGE): tuple(_whole(calls, sizes[name])) for name, calls in found.items()}


def _whole(calls: dict[int, list[_Message]], size: int | None) -> Iterator[AwaitedCall]:
    """Those in which every member sends and receives, and no pair is missing that others have."""
    most = max(len(messages) for messages in calls.values())
    for number, messages in sorted(calls.items()):
        senders, receivers = {each.sender for each in messages}, {each.receiver for each in messages}
        if len(messages) == most and senders == receivers and len(senders) == size:
            yield _awaited(number, sorted(senders), messages)


def _awaited(number: int, ranks: Sequence[int], messages: Sequence[_Message]) -> AwaitedCall:
    """Who came last is the one that the others wait for most; what it waited for others itself speaks against that."""
    waited = _waited({rank: at for at, rank in enumerate(ranks)}, messages)
    late = np.nanmedian(waited, axis=0)
    least = late.max() - late
    own: dict[int, list[_Message]] = defaultdict(list)
    for each in messages:
        own[each.sender].append(each)
        own[each.receiver].append(each)
    return AwaitedCall(
        number,
        dict(zip(ranks, (least + np.nanmax(waited, axis=1)).tolist(), strict=True)),
        dict(zip(ranks, least.tolist(), strict=True)),
        {rank: max(each.sent_at if each.sender == rank else each.got_at for each in own[rank]) for rank in ranks},
        {rank: max(each.held_ns for each in own[rank] if each.receiver == rank) for rank in ranks},
        {rank: max(each.sent_ns if each.sender == rank else each.got_ns for each in own[rank]) for rank in ranks},
        {each.sender: each.source for each in messages},
        _loads(ranks, messages),
    )


def _waited(place: Mapping[int, int], messages: Sequence[_Message]) -> Times:
    """What each member (row) waited for each other (column), ns; not a number between those without a message."""
    waited = np.full((len(place), len(place)), np.nan)
    usual = median(min(each.gpu_ns, each.wire_ns) for each in messages)
    for each in messages:
        sender, receiver = place[each.sender], place[each.receiver]
        unready = max(0.0, min(each.gpu_ns, each.wire_ns) - usual)
        # What had arrived and waited for the receiver's own GPU, it did not wait for the sender.
        sooner = each.got_ns - each.held_ns - each.sent_ns
        waited[receiver, sender] = np.fmax(waited[receiver, sender], max(0.0, sooner) + unready)
        waited[sender, receiver] = np.fmax(waited[sender, receiver], min(max(0.0, -sooner), each.credit_ns))
    return waited


def _loads(ranks: Sequence[int], messages: Sequence[_Message]) -> dict[int, float]:
    """What each member sends, or gets where that is more, relative to the mean of all."""
    sent, got = dict.fromkeys(ranks, 0.0), dict.fromkeys(ranks, 0.0)
    for each in messages:
        sent[each.sender] += each.bytes
        got[each.receiver] += each.bytes
    mean = sum(sent.values()) / len(ranks)
    return {rank: max(sent[rank], got[rank]) / mean if mean else 1.0 for rank in ranks}
