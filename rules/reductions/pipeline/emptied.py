"""Where steps begin in a full ring of a pipeline that ends them with no call of all ranks: where nothing is under way again.

A stage has passed on fewest microbatches that did not come back at the end of a step: with the next stage as sends less
receives, with the one before as receives less sends. In the steady part of a step the difference only goes up and down by one
(1F1B; Narayanan et al., SC 2021, section 2.2), so that a level which comes back at equal distances is of the ends.
"""

from __future__ import annotations

import numpy as np

from forensics.rules.reductions.steps.records import Ints, Record

# A stage that answers each message at once, or a ring that holds only the steady part, is lowest with each microbatch.
_THERE_AND_BACK = 2
_MOST_PEERS = 2


def emptied_begins(record: Record) -> Ints:
    """The begins of steps behind messages with which all that was passed on has come back; empty where nothing shows them.

    All forward passes before all backward ones (GPipe) look alike from both ends, and show none.
    """
    messages = np.flatnonzero(record.is_message & (record.peer >= 0))
    peers = np.unique(record.peer[messages])
    if not 1 <= len(peers) <= _MOST_PEERS:
        return messages[:0]
    found = {sign: ends for peer in peers.tolist() if (known := _ends(record, messages, peer)) for sign, ends in (known,)}
    if len(found) < len(peers):
        return messages[:0]
    # The stage before is sent the gradient of a microbatch after the next stage has sent it.
    ends = found.get(-1, found.get(1, messages[:0]))
    begins = ends[ends < len(record) - 1] + 1
    is_cut = record.call_order[begins] == record.call_order[begins - 1]
    return begins[:0] if is_cut.any() else begins


def _ends(record: Record, messages: Ints, peer: int) -> tuple[int, Ints] | None:
    """Whether messages to a neighbour go forward (1) or come from it (-1), and the last message of each step with it."""
    own = messages[record.peer[messages] == peer]
    # Of messages of one group call, none comes before another.
    last = np.flatnonzero(np.diff(record.call_order[own], append=-1) != 0)
    level = np.cumsum(np.where(record.is_send[own], 1, -1))[last]
    known = [(sign, own[last[at]]) for sign in (1, -1) if len(at := _lowest(sign * level))]
    return known[0] if len(known) == 1 else None


def _lowest(level: Ints) -> Ints:
    """Where a level is lowest, if that recurs at equal distances that are no turns of one microbatch."""
    at = np.flatnonzero(level == level.min())
    apart = np.diff(at)
    recurs = len(apart) and bool((apart == apart[0]).all()) and apart[0] > _THERE_AND_BACK
    return at if recurs else at[:0]
