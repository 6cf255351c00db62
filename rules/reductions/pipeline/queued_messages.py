"""Messages that wait for their turn behind a collective of their own rank.

What a rank sends in one direction shares its NIC, and the multiprocessors of its GPU. A message that is issued just behind a
collective of another group may get through when that is over, and is then as long as that one, which takes what it always does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forensics.rules.reductions.pipeline.meetings import Call
from forensics.rules.reductions.steps.records import UNKNOWN, Record
from forensics.rules.reductions.steps.times import Floats, StepTimes

# Of what the message took longer: their ends on the clock of the host may differ by so much, and what the collective took
# longer than usual is not what the message waited for.
_ENDS_WITH, _MOST_LATE = 0.05, 0.5


def waits_its_turn(times: StepTimes, members: Sequence[Call]) -> bool:
    """Whether a message ended with a collective that one of its ends had issued before it, and that took its usual time."""
    return any(_is_behind(times.ranks[call.rank].record, call.place, call.excess) for call in members)


def _is_behind(record: Record, place: int, excess: float) -> bool:
    if not record.is_message[place]:
        return False
    over = _over(record, place + 1)
    with_it = np.flatnonzero(np.abs(over[:-1] - over[-1]) <= _ENDS_WITH * excess)
    return any(not record.is_message[at] and _longer(record, at) < _MOST_LATE * excess for at in with_it.tolist())


def _longer(record: Record, place: int) -> float:
    """By how many ns a call took longer than those like it."""
    alike = record.duration_ns[(record.token == record.token[place]) & (record.duration_ns != UNKNOWN)]
    return float(record.duration_ns[place] - np.median(alike))


def _over(record: Record, count: int) -> Floats:
    """When the first calls were over (ns) if they began as they were issued; NaN where that is not known."""
    issued, took = record.enqueued_ns[:count], record.duration_ns[:count]
    return np.where((issued != UNKNOWN) & (took != UNKNOWN), (issued + took).astype(np.float64), np.nan)
