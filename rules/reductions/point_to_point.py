"""Pending sends and receives that their peer has not answered: waits between two ranks.

Peers in a Flight Recorder entry are group-local ranks; the members of the communicator turn them into global ones. gloo records
no sends and receives, their waits show in stacks only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.positions import Communicator, Operation
from forensics.rules.reductions.waits import Wait

_PENDING = """
WITH newest AS (SELECT rank, max(snapshot) AS snapshot FROM operations WHERE rank IS NOT NULL GROUP BY rank)
SELECT o.communicator, o.rank, o.kind, o.peer, o.sequence, coalesce(o.input_sizes, ''), o.enqueued_ns, o.call_path, s.path,
       o.locator, coalesce(o.record_id, o.locator)
FROM operations o JOIN newest USING (rank, snapshot) JOIN sources s USING (source_id)
WHERE o.kind IN ('send', 'recv') AND o.state <> 'done' AND o.peer IS NOT NULL AND o.communicator IS NOT NULL
ORDER BY o.communicator, o.sequence, o.rank, o.locator
"""


def point_to_point_waits(
    connection: DuckDBPyConnection, groups: Sequence[Communicator], heard: Collection[int], ignore: Collection[int] = ()
) -> tuple[Wait, ...]:
    """Build the waits of pending sends and receives; `heard` are ranks with a dump, `ignore` those out of date.

    The n-th pending send of a pair belongs to its n-th pending receive; what is left over waits for the other side.
    """
    pairs = _pairs(connection, groups, ignore)
    return tuple(wait for pair, calls in sorted(pairs.items()) for wait in _waits(pair, calls, heard))


@dataclass(slots=True)
class _Calls:
    """Pending calls between a sender and a receiver, in order: (communicator, sequence, operation)."""

    sends: list[tuple[str, int, Operation]] = field(default_factory=list)
    receives: list[tuple[str, int, Operation]] = field(default_factory=list)


def _pairs(
    connection: DuckDBPyConnection, groups: Sequence[Communicator], ignore: Collection[int]
) -> dict[tuple[int, int], _Calls]:
    members = {group.label: group.members for group in groups}
    pairs: dict[tuple[int, int], _Calls] = defaultdict(_Calls)
    for label, rank, kind, peer, sequence, *operation in connection.execute(_PENDING).fetchall():
        ranks = members.get(label, ())
        if rank in ignore or not 0 <= peer < len(ranks) or ranks[peer] == rank:
            continue
        sizes, enqueued_ns, call_path, path, locator, order = operation
        call = (label, sequence or 0, Operation(kind, sizes, enqueued_ns, call_path, f"{path}#entry={locator}", order))
        if kind == "send":
            pairs[rank, ranks[peer]].sends.append(call)
        else:
            pairs[ranks[peer], rank].receives.append(call)
    return pairs


def _waits(pair: tuple[int, int], calls: _Calls, heard: Collection[int]) -> Iterator[Wait]:
    for send, receive in zip_longest(calls.sends, calls.receives):
        label, sequence, _ = send or receive
        waiting = {rank: call[2] for rank, call in zip(pair, (send, receive), strict=True) if call}
        silent = tuple(rank for rank in pair if rank not in waiting)
        absent = tuple(rank for rank in silent if rank in heard)
        yield Wait(label, sequence, waiting, absent, () if absent else silent, peers=pair)
