"""Messages that a rank without a record may stand in: the other end waits in one that ranks beside it have behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NewType

from forensics.case.database import rows_of
from forensics.rules.reductions.calls.positions import Communicators, Operation, labelled
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.waits.graph import Wait, WaitGraph

LastMessages = NewType("LastMessages", Mapping[int, tuple[Wait, int]])
"""By rank without a record: the message that it has not finished before anything else it is awaited in, and its other end."""

_Beside = tuple[int, Operation, tuple[str, ...]]
"""A rank at the place of the silent one in other groups of messages, what it waits for the silent one in, and these groups."""

# Buffers wrap, so that messages are counted from the last collective that both ranks finished.
_FINISHED = """
WITH own AS (SELECT * FROM ordered_call WHERE rank = $end AND family = 'recorder' AND state = 'done'),
     beside AS (SELECT * FROM ordered_call WHERE rank = $beside AND family = 'recorder' AND state = 'done'),
     common AS (
         SELECT o.call_order AS own_order, b.call_order AS beside_order
         FROM own o JOIN beside b USING (communicator, sequence, kind)
         WHERE NOT o.is_p2p AND NOT b.is_p2p ORDER BY o.call_order DESC LIMIT 1
     )
SELECT (SELECT count(*) FROM own WHERE kind = $kind AND peer = $other AND communicator = $label AND call_order > own_order),
       (SELECT count(*) FROM beside WHERE kind = $answer AND peer = $place AND list_contains($labels, communicator)
        AND call_order > beside_order AND call_order < $before)
FROM common
"""


@reduction
def last_messages(calls: Calls, groups: Communicators, graph: WaitGraph) -> LastMessages:
    """Of ranks that nothing was recorded of: the message at whose other end a rank waits first of all, where a rank waits for
    the silent one in a collective that comes after the same message between it and its own peer.

    Ranks of one such collective make the same calls in the same order: the silent rank has not finished that message, by its
    own fault or because the transfer between the two does not get through. (VenusTrace section 4.2, incomplete graph.)
    """
    silent = {rank for wait in graph.waits if wait.peers for rank in wait.unheard}
    found = {rank: tuple(_messages(calls, groups, graph, rank)) for rank in silent}
    return LastMessages({rank: messages[0] for rank, messages in found.items() if len(messages) == 1})


def _messages(calls: Calls, groups: Communicators, graph: WaitGraph, rank: int) -> Iterator[tuple[Wait, int]]:
    for wait in graph.waiting_for(rank):
        end = next((other for other in wait.peers or () if other != rank), None)
        call = wait.waiting.get(end) if end is not None else None
        group = labelled(groups, wait.communicator)
        members = group.members if group else ()
        if end is None or call is None or not {rank, end} <= set(members) or not _is_first(graph, end, call):
            continue
        if beside := _beside(groups, graph, rank, members):
            places = members.index(end), members.index(rank)
            if _is_ahead(calls, wait.communicator, (end, call), beside, places):
                yield wait, end


def _is_first(graph: WaitGraph, rank: int, call: Operation) -> bool:
    """Whether a rank finished all that it issued before this call."""
    pending = [op.order for wait in graph.waits if (op := wait.waiting.get(rank))]
    return call.order <= min(pending, default=call.order)


def _beside(groups: Communicators, graph: WaitGraph, rank: int, members: tuple[int, ...]) -> _Beside | None:
    """The rank that waits earliest for the silent one in a collective, of those with its place in groups of the same size."""
    place = members.index(rank)
    found: list[_Beside] = []
    for wait in graph.waiting_for(rank):
        for other, call in wait.waiting.items():
            labels = tuple(g.label for g in groups if len(g.members) == len(members) and g.members[place] == other)
            if call and labels and not wait.peers and _is_first(graph, other, call):
                found.append((other, call, labels))
    return min(found, key=lambda each: each[1].order, default=None)


def _is_ahead(calls: Calls, label: str, own: tuple[int, Operation], beside: _Beside, places: tuple[int, int]) -> bool:
    """Whether the rank beside finished more messages of this kind with its peer than the seen end did with the silent one."""
    (end, call), (other, later, labels) = own, beside
    asked = {
        "end": end, "kind": call.kind, "label": label, "other": places[1], "beside": other, "place": places[0],
        "answer": "recv" if call.kind == "send" else "send", "labels": list(labels), "before": later.order,
    }  # fmt: skip
    return any(done > finished for finished, done in rows_of(calls.connection, "operations", _FINISHED, asked))
