"""Mismatches that are a race: two threads of each process make calls in one communicator, and nothing orders them.

A call that one rank skipped, or made too much, moves its later calls by one. Here both camps make the same two calls, each from
a thread of its own, in the one order and in the other: as a checkpoint that is written in the background makes its collectives
beside those of the steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NewType

from forensics.case.database import rows_of
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.mismatch.disagreements import BlockingMismatches, Disagreement

# Both threads are stuck in, or soon behind, what is mismatched: what lies further on belongs to another mismatch.
_WINDOW = 8
# Threads of autograd make their calls while the main thread waits for them: two threads, and yet one order.
_AUTOGRAD = "pt_autograd"

_CALLS = f"""
SELECT o.rank, o.sequence, o.thread, o.kind, coalesce(o.input_sizes, ''), src.path || '#entry=' || o.locator
FROM ordered_call o JOIN sources src USING (source_id)
WHERE o.communicator = $communicator AND o.sequence BETWEEN $first AND $first + {_WINDOW}
    AND NOT coalesce(o.is_p2p, false) AND NOT o.closes AND o.rank IS NOT NULL
QUALIFY 1 = row_number() OVER (PARTITION BY o.rank, o.sequence ORDER BY o.record_id, o.locator)
ORDER BY o.rank, o.sequence
"""


@dataclass(frozen=True, slots=True)
class ThreadCall:
    """One call: its number, the thread that made it (None where that is not recorded), what was called, where it was read."""

    sequence: int
    thread: str | None
    kind: str
    sizes: str
    source: str

    @property
    def called(self) -> tuple[str, str]:
        """Kind and sizes: what has to agree over the ranks."""
        return self.kind, self.sizes


@dataclass(frozen=True, slots=True)
class Race:
    """Two calls of one communicator that `ranks` (one of each camp) made in opposite orders, each from two threads.

    `orders` has the two calls of each of these ranks, the first one first.
    """

    orders: Mapping[int, tuple[ThreadCall, ThreadCall]]


Races = NewType("Races", Mapping[str, Race])
"""The race that explains the mismatch of a communicator, by its label."""


@reduction
def races(calls: Calls, mismatches: BlockingMismatches) -> Races:
    """Find the mismatches in which a rank of each camp made both calls, in opposite orders and from two threads each."""
    found = {mismatch.communicator: _race(calls, mismatch) for mismatch in mismatches if mismatch.kinds_differ}
    return Races({label: race for label, race in found.items() if race is not None})


def _race(calls: Calls, mismatch: Disagreement) -> Race | None:
    made: dict[int, list[ThreadCall]] = defaultdict(list)
    asked = {"communicator": mismatch.communicator, "first": mismatch.sequence}
    for rank, *call in rows_of(calls.connection, "operations", _CALLS, asked):
        made[rank].append(ThreadCall(*call))
    orders = {rank: pair for rank, own in made.items() if rank in mismatch.calls and (pair := _pair(own, mismatch, made))}
    first = {pair[0].called for pair in orders.values()}
    return Race(orders) if len(first) > 1 else None


def _pair(
    own: Sequence[ThreadCall], mismatch: Disagreement, made: Mapping[int, Sequence[ThreadCall]]
) -> tuple[ThreadCall, ThreadCall] | None:
    """The mismatched call of a rank and its later one that others made in the place of the first, if another thread made it."""
    first = own[0]
    if first.sequence != mismatch.sequence:
        return None
    others = {calls[0].called for calls in made.values() if calls[0].sequence == mismatch.sequence} - {first.called}
    later = next((call for call in own[1:] if call.called in others), None)
    if later is None or not _concurrent(first.thread, later.thread):
        return None
    return first, later


def _concurrent(one: str | None, two: str | None) -> bool:
    """Whether these are two threads of which neither is known to wait for the other."""
    return one is not None and two is not None and one != two and not any(name.startswith(_AUTOGRAD) for name in (one, two))
