"""Pending sends and receives that their peer has not answered: waits between two ranks.

Peers in a Flight Recorder entry are group-local ranks; the members of the communicator turn them into global ones. gloo records
no sends and receives, their waits show in stacks only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import Family
from forensics.rules.reductions.calls.positions import Communicator, Operation
from forensics.rules.reductions.waits.collective_waits import Heard, without_other_records
from forensics.rules.reductions.waits.graph import Wait

_PENDING = """
SELECT o.communicator, o.rank, o.kind, o.peer, o.sequence, coalesce(o.input_sizes, ''), o.enqueued_ns, o.call_path, s.path,
       o.locator, o.call_order, o.state = 'started', o.family
FROM ordered_call o JOIN sources s USING (source_id)
WHERE o.kind IN ('send', 'recv') AND o.state <> 'done' AND o.peer IS NOT NULL AND o.communicator IS NOT NULL
ORDER BY o.communicator, o.sequence, o.rank, o.locator
"""

# How many calls of each kind a rank made to each peer; of ranks whose buffer still holds their first call.
_POSTED = """
WITH complete AS (SELECT rank, family FROM latest_call GROUP BY rank, family HAVING min(record_id) = 0)
SELECT communicator, rank, kind, peer, count(*) FROM latest_call JOIN complete USING (rank, family)
WHERE kind IN ('send', 'recv') AND peer IS NOT NULL AND communicator IS NOT NULL GROUP BY ALL
"""


_KINDS = ("send", "recv")
_Call = tuple[int, Operation]
"""Sequence and operation."""


def point_to_point_waits(
    connection: DuckDBPyConnection, groups: Sequence[Communicator], heard: Heard, ignore: Collection[int] = ()
) -> tuple[Wait, ...]:
    """Build the waits of pending sends and receives; `ignore` are ranks whose calls are out of date.

    The n-th send of a pair belongs to its n-th receive, over the whole run where both buffers reach back to its start, else
    among the pending ones. What is left over waits for the other side, unless that side has posted it and is done. Of a rank
    whose record was cut nothing shows what it has not posted.
    """
    pairs = _pairs(connection, groups, ignore)
    cut = frozenset().union(*(group.cut for group in groups))
    posted = _posted(connection, groups, cut)
    found = (wait for key, calls in sorted(pairs.items()) for wait in _waits(*key, calls, posted, heard, (ignore, cut)))
    return tuple(wait for wait in found if wait is not None)


@dataclass(slots=True)
class _Calls:
    """Pending calls between a sender and a receiver, in order."""

    family: Family = Family.RECORDER
    sends: list[_Call] = field(default_factory=list)
    receives: list[_Call] = field(default_factory=list)


_Pair = tuple[str, tuple[int, int]]
"""Communicator, sender and receiver."""


def _pairs(connection: DuckDBPyConnection, groups: Sequence[Communicator], ignore: Collection[int]) -> dict[_Pair, _Calls]:
    members = {group.label: group.members for group in groups}
    pairs: dict[_Pair, _Calls] = defaultdict(_Calls)
    for label, rank, kind, peer, sequence, *operation in rows_of(connection, "operations", _PENDING, kinds=_KINDS):
        ranks = members.get(label, ())
        if rank in ignore or not 0 <= peer < len(ranks) or ranks[peer] == rank:
            continue
        sizes, enqueued_ns, call_path, path, locator, *place, family = operation
        call = (sequence or 0, Operation(kind, sizes, enqueued_ns, call_path, f"{path}#entry={locator}", *place))
        found = pairs[label, (rank, ranks[peer]) if kind == "send" else (ranks[peer], rank)]
        found.family = Family(family)
        (found.sends if kind == "send" else found.receives).append(call)
    return pairs


def _posted(
    connection: DuckDBPyConnection, groups: Sequence[Communicator], cut: Collection[int]
) -> dict[tuple[_Pair, str], int]:
    """Sends and receives of each pair over the whole run; for ranks whose buffer wrapped or was cut nothing is known."""
    members = {group.label: group.members for group in groups}
    found: dict[tuple[_Pair, str], int] = {}
    for label, rank, kind, peer, count in rows_of(connection, "operations", _POSTED, kinds=_KINDS):
        ranks = members.get(label, ())
        if rank not in cut and 0 <= peer < len(ranks):
            pair = (rank, ranks[peer]) if kind == "send" else (ranks[peer], rank)
            found[(label, pair), kind] = count
    return found


def _waits(
    label: str,
    pair: tuple[int, int],
    calls: _Calls,
    posted: Mapping[tuple[_Pair, str], int],
    heard: Heard,
    lost_of: tuple[Collection[int], Collection[int]],
) -> Iterator[Wait | None]:
    """`lost_of` are ranks whose processes are gone, and those whose newest calls are not in their records."""
    gone, cut = lost_of
    sent, received = posted.get(((label, pair), "send")), posted.get(((label, pair), "recv"))
    numbered = sent is not None and received is not None
    # Pending calls are the last ones of a kind; without the whole run only their own order is known.
    sends = dict(enumerate(calls.sends, (sent or 0) - len(calls.sends) if numbered else 0))
    receives = dict(enumerate(calls.receives, (received or 0) - len(calls.receives) if numbered else 0))
    totals = (sent or 0, received or 0) if numbered else (0, 0)
    for number in sorted({*sends, *receives}):
        sides = (sends.get(number), receives.get(number))
        waiting = {rank: call[1] for rank, call in zip(pair, sides, strict=True) if call}
        sequence = next(call[0] for call in sides if call)
        unposted = {rank for rank, total in zip(pair, totals, strict=True) if rank not in waiting and number >= total}
        absent = tuple(rank for rank in pair if rank in unposted and rank in heard[calls.family] and rank not in cut)
        # What a process had posted when it ended is not there any more.
        silent = tuple(rank for rank in pair if rank in unposted or (rank in gone and rank not in waiting))
        families = dict.fromkeys((*waiting, *absent), calls.family)
        lost = tuple(rank for rank in silent if rank not in unposted and not absent)
        wait = Wait(label, sequence, waiting, absent, () if absent else silent, peers=pair, families=families, lost=lost)
        yield without_other_records(wait, heard)


@dataclass(frozen=True, slots=True)
class Overtaken:
    """A message that `finished_by` finished although `rank`, its other side, has it queued behind an earlier one."""

    rank: int
    finished_by: int
    behind: Wait


def overtaken(waits: Sequence[Wait]) -> Overtaken | None:
    """A message that one side has finished and the other not begun, as it is in an earlier one of the same pair.

    They pass one after the other, so no dumps of one moment hold both; None where none is of that kind.
    """
    pending: dict[tuple[str, tuple[int, int], int], tuple[Wait, int]] = {}
    for wait in waits:
        if wait.peers is None or wait.missing or len(wait.waiting) != 1:
            continue
        ((rank, call),) = wait.waiting.items()
        order = call.order if call is not None else 0
        first, before = pending.setdefault((wait.communicator, wait.peers, rank), (wait, order))
        if order != before:
            return Overtaken(rank, next(peer for peer in wait.peers if peer != rank), first)
    return None
