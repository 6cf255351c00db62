"""Whether the last operator on each link is whole, and whom those that are not point at, where nothing moves any more.

An operator is whole where it moved what the messages of its calls have (Pulse 6.2: completion of each message against its
expected volume), else what the link moved with each one before; headers and what was sent again come on top. An open tail is
an operator that began and did not end (Pulse 5.2). No link beside it is needed, and no clock but that of the link's own NIC.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NewType

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.epochs.cells import Ints
from forensics.rules.reductions.epochs.halted_links import SLICE_BYTES
from forensics.rules.reductions.epochs.operators import MovedByNic, NicOperators, PeerOperators
from forensics.rules.reductions.epochs.paused_rings import PausedRings
from forensics.rules.reductions.epochs.standstill import NicSilence
from forensics.rules.reductions.interface import reduction

Ends = tuple[int, int]

# Operators before the last one, at least and at most, and by how much they may differ where nothing else shows their volume.
_FEWEST, _MOST, _DIFFER = 3, 10, 1.2
# Of the volume of messages, what a NIC counts at least and at most; and of what was usual, what a whole operator has at least.
_LEAST, _OVERHEAD, _WHOLE = 0.995, 1.04, 0.97
# Of the operators of a link that must be messages of one size; and messages in one operator: of more no number can be stated.
_OF_ONE_SIZE, _MOST_MESSAGES = 0.8, 12
# Of the usual volume: who moved more of it may only have been the last to end.
_MUCH = 0.8
# Ranks of a ring or exchange: of fewer nobody is beside the two links of one.
_FEWEST_RANKS = 4

_SIZES = """
SELECT o.rank AS sender, m.rank AS receiver, list(DISTINCT o.bytes) AS sizes
FROM operations o JOIN members m ON m.communicator = o.communicator AND m.position = o.peer
WHERE o.kind = 'send' AND o.bytes >= $least GROUP BY ALL HAVING len(sizes) = 1 ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class Tail:
    """The last operator of a link: it `moved` so many bytes, of `expected` of a whole one; `by_calls` where messages say so.

    It ended at `since_ns` of the clock of the host of `shown_by`, whose capture `source` is.
    """

    sender: int
    receiver: int
    moved: int
    expected: int
    whole: bool
    by_calls: bool
    since_ns: int
    shown_by: int
    nic: str
    source: str
    clock: str | None = None

    @property
    def ends(self) -> Ends:
        """Sender and receiver."""
        return self.sender, self.receiver


LinkTails = NewType("LinkTails", Mapping[Ends, Tail])
"""By sender and receiver, of links whose operators have a usual volume; none where something still moves."""


@dataclass(frozen=True, slots=True)
class StoppedRank:
    """The rank that open tails point at: its links are whole where it `did_not_begin`, else open.

    `links` are those of it, `others` those of the same ring or exchange without it.
    """

    rank: int
    did_not_begin: bool
    links: tuple[Tail, ...]
    others: tuple[Tail, ...]


StoppedRanks = NewType("StoppedRanks", tuple[StoppedRank, ...])
"""One of each ring or exchange in which somebody is stated, by rank."""


@reduction
def link_tails(moved: NicOperators, silence: NicSilence, calls: Calls) -> LinkTails:
    """Judge the last operator of each link; where both its NICs tell of it they have to agree."""
    if not silence:
        return LinkTails({})
    sizes = _sizes(calls.connection)
    stated: dict[Ends, list[Tail | None]] = defaultdict(list)
    for nic in moved:
        for peer in nic.peers:
            ends = (peer.own, peer.peer) if peer.direction == "send" else (peer.peer, peer.own)
            stated[ends].append(_tail(nic, peer, ends, sizes.get(ends)))
    return LinkTails({ends: tail for ends, tails in sorted(stated.items()) if (tail := _agreed(tails)) is not None})


def _sizes(connection: DuckDBPyConnection) -> Mapping[Ends, int]:
    """Bytes of a message by its two ends, where all have one size."""
    found = connection.execute(_SIZES, {"least": SLICE_BYTES}).fetchall()
    return {(sender, receiver): sizes[0] for sender, receiver, sizes in found}


def _agreed(tails: Sequence[Tail | None]) -> Tail | None:
    """As the sender tells it, where all who tell of the link say the same: else one capture ended before the job did."""
    known = [tail for tail in tails if tail is not None]
    if len(known) < len(tails) or len({tail.whole for tail in known}) > 1:
        return None
    return max(known, key=lambda tail: tail.shown_by == tail.sender)


def _tail(nic: MovedByNic, peer: PeerOperators, ends: Ends, size: int | None) -> Tail | None:
    """None where the operators before the last one have no volume in common."""
    past = peer.bytes[:-1][-_MOST:]
    if len(past) < _FEWEST:
        return None
    last, by_calls = int(peer.bytes[-1]), size is not None and float(_are_messages(past, size).mean()) >= _OF_ONE_SIZE
    if by_calls and size is not None:
        whole, expected = bool(_are_messages(peer.bytes[-1:], size)[0]), size * (last // size + 1)
    elif float(past.max()) <= _DIFFER * float(past.min()):
        whole, expected = last >= _WHOLE * float(past.min()), int(np.median(past))
    else:
        return None
    capture, since = nic.capture, (int(peer.end[-1]) + 1) * nic.capture.epoch_ns
    source = f"{capture.path}#peer={peer.peer}"
    return Tail(*ends, last, expected, whole, by_calls, since, peer.own, capture.nic, source, capture.clock)


def _are_messages(moved: Ints, size: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which volumes are those of one message or of several: beyond some the overhead of all hides a part of one."""
    count = np.ceil(moved / (_OVERHEAD * size))
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = (count <= _MOST_MESSAGES) & (moved >= _LEAST * count * size)
    return found


@reduction
def stopped_ranks(tails: LinkTails, rings: PausedRings) -> StoppedRanks:
    """The rank of each ring that its tails point at; without any, that of each exchange."""
    found = [one for ring in rings.rings if (one := _of_ring(ring, tails)) is not None] or list(_of_exchanges(tails))
    return StoppedRanks(tuple(sorted(found, key=lambda one: one.rank)))


def _of_ring(ring: Sequence[int], tails: LinkTails) -> StoppedRank | None:
    """The rank whose two links are whole while all others of the ring began an operator more."""
    links = [tails.get((rank, ring[(at + 1) % len(ring)])) for at, rank in enumerate(ring)]
    known = [tail for tail in links if tail is not None]
    whole = [tail for tail in known if tail.whole]
    common = set.intersection(*({*tail.ends} for tail in whole)) if whole else set()
    if len(ring) < _FEWEST_RANKS or len(known) < len(ring) or len(whole) != 2 or len(common) != 1:
        return None
    others = tuple(tail for tail in known if not tail.whole)
    return StoppedRank(common.pop(), True, tuple(whole), others) if all(map(_is_short, others)) else None


def _of_exchanges(tails: LinkTails) -> Iterator[StoppedRank]:
    """The rank whose messages to and from all of its peers are open, while those of all other pairs are whole."""
    partners: dict[int, set[int]] = defaultdict(set)
    for sender, receiver in tails:
        if (receiver, sender) in tails:
            partners[sender].add(receiver)
    for rank, peers in sorted(partners.items()):
        members = {rank, *peers}
        if len(members) < _FEWEST_RANKS or any(members - {peer} - partners[peer] for peer in peers):
            continue
        links = [tail for ends, tail in tails.items() if {*ends} <= members]
        own, others = ([tail for tail in links if (rank in tail.ends) is mine] for mine in (True, False))
        if all(tail.whole for tail in others) and _are_open(own, links):
            yield StoppedRank(rank, False, tuple(tail for tail in own if not tail.whole), tuple(others))


def _are_open(own: Sequence[Tail], links: Iterable[Tail]) -> bool:
    """Whether one direction with each peer is open at least; of uneven operators the largest ends last by itself."""
    volumes = [tail.expected for tail in links if not tail.by_calls]
    is_even = not volumes or max(volumes) <= _DIFFER * min(volumes)
    peers = {frozenset(tail.ends) for tail in own}
    still = {frozenset(tail.ends) for tail in own if not tail.whole}
    return is_even and still == peers and all(_is_short(tail) for tail in own if not tail.whole)


def _is_short(tail: Tail) -> bool:
    return tail.moved <= _MUCH * tail.expected and tail.moved > SLICE_BYTES
