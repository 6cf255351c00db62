"""Messages of an exchange that did not complete, where nothing moves any more (Pulse section 6.2, custom collectives).

An exchange is a set of messages there and back, each of which completes by itself: those with a rank that stopped do not, and
those between all others do. What a message should have moved is what the same NIC moved to and from its other ranks in the same
time: one clock tells of all of them, and nothing has to lie beside them on the same host, as for rails. In a ring or a tree all
links stop within some slices, and nothing is found; the two directions of a pipeline end at different times when its passes do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from forensics.rules.reductions.epochs.cells import Ints
from forensics.rules.reductions.epochs.halted_links import LEAST_AFTER_NS, SLICE_BYTES, Rail, rail_of
from forensics.rules.reductions.epochs.operators import MovedByNic, NicOperators
from forensics.rules.reductions.epochs.segments import DELTA_NS
from forensics.rules.reductions.epochs.standstill import NicSilence
from forensics.rules.reductions.interface import reduction

# Parts of the time before a link stopped in which another one moved as much, how many of ten may differ, and by how much.
_PARTS, _MAY_DIFFER, _ALIKE = 10, 0.1, 0.03
_TELLERS = 2


@dataclass(frozen=True, slots=True)
class UnfinishedMessages:
    """Messages between `rank` and `peer` that stopped, by the NIC of `rank`, `stopped_ns` before other messages of it ended.

    These, `others` links, moved `beyond` bytes after that at least, and as much as this one before. `since_ns` is when it
    stopped, of the clock of the NIC's host; `source` is the capture.
    """

    rank: int
    peer: int
    since_ns: int
    stopped_ns: int
    beyond: int
    others: int
    nic: str
    source: str
    clock: str | None = None


@dataclass(frozen=True, slots=True)
class HaltedExchange:
    """The rank whose messages did not complete, or the two of a pair, by those who tell of it; false where nobody is stated.

    `complete` is the number of pairs of other ranks whose messages went on.
    """

    ranks: tuple[int, ...] = ()
    stated: tuple[UnfinishedMessages, ...] = ()
    complete: int = 0

    def __bool__(self) -> bool:
        return bool(self.ranks)


@reduction
def halted_exchange(moved: NicOperators, silence: NicSilence) -> HaltedExchange:
    """The one rank that all of its peers point at, or the two that point at each other; of ranks that share a NIC none."""
    if not silence or any(len(nic.capture.ranks) > 1 for nic in moved):
        return HaltedExchange()
    pairs = {nic.capture.rank: dict(_pairs(nic)) for nic in moved}
    stated = {rank: tuple(_unfinished(nic, pairs[rank])) for nic in moved if (rank := nic.capture.rank) in pairs}
    pointed = {rank: {each.peer for each in found} for rank, found in stated.items() if found}
    ranks = _pointed_at(pointed, pairs)
    every = {frozenset((rank, peer)) for rank, found in pairs.items() for peer in found}
    halted = {frozenset((rank, peer)) for rank, found in pointed.items() for peer in found}
    complete = sum(len(ranks) > 1 or not pair & {*ranks} for pair in every - halted)
    if not ranks or not complete:
        return HaltedExchange()
    return HaltedExchange(ranks, tuple(each for _, found in sorted(stated.items()) for each in found), complete)


def _pointed_at(pointed: Mapping[int, set[int]], pairs: Mapping[int, Mapping[int, object]]) -> tuple[int, ...]:
    """Who stopped by all that point at somebody, where all of its peers that could point at it do."""
    blamed = set[int]().union(*pointed.values())
    if len(pointed) < _TELLERS or any(len(peers) > 1 for peers in pointed.values()):
        return ()
    if len(blamed) == 1:
        (rank,) = blamed
        could = {peer for peer in pairs.get(rank, ()) if len(pairs.get(peer, ())) > 1}
        return (rank,) if could == pointed.keys() else ()
    return tuple(sorted(blamed)) if blamed == pointed.keys() and len(blamed) == _TELLERS else ()


def _pairs(nic: MovedByNic) -> Iterator[tuple[int, tuple[Rail, Rail]]]:
    """What a NIC sends to each other rank and gets from it, of those with which it does both."""
    ways = {(peer.peer, peer.direction): rail_of(nic, peer) for peer in nic.peers}
    for peer in sorted({peer for peer, _ in ways}):
        if (peer, "send") in ways and (peer, "recv") in ways:
            yield peer, (ways[peer, "send"], ways[peer, "recv"])


def _unfinished(nic: MovedByNic, pairs: Mapping[int, tuple[Rail, Rail]]) -> Iterator[UnfinishedMessages]:
    """Pairs of which both directions stopped while those of others went on."""
    for peer, both in pairs.items():
        others = [rails for other, rails in pairs.items() if other != peer]
        beyond = [min(_beyond(mine, other) for mine, other in zip(both, rails, strict=True)) for rails in others]
        went_on = [each for each in beyond if each > SLICE_BYTES]
        if went_on and 2 * len(went_on) >= len(others):
            since = max(int(rail.end[-1]) for rail in both)
            last = max(int(rail.end[-1]) for rails in others for rail in rails)
            capture = nic.capture
            source = f"{capture.path}#peer={peer}"
            yield UnfinishedMessages(
                capture.rank, peer, since, last - since, min(went_on), len(went_on), capture.nic, source, capture.clock
            )  # fmt: skip


def _beyond(mine: Rail, other: Rail) -> int:
    """Bytes of the other link after this one stopped, where it moved as much before that and went on for long; else 0.

    An operator more that is whole is long enough.
    """
    begin, end = max(int(mine.begin[0]), int(other.begin[0])), int(mine.end[-1])
    last = int(other.end[-1])
    is_long = last - end >= LEAST_AFTER_NS or (other.begin[-1] - end >= DELTA_NS and other.is_whole(len(other.begin) - 1))
    if not is_long or end <= begin:
        return 0
    marks = np.linspace(begin, end, _PARTS + 1).astype(np.int64)
    alike = _are_alike(mine.moved(marks), other.moved(marks))
    return int(other.moved(np.array([end, last]))[0]) if alike else 0


def _are_alike(mine: Ints, theirs: Ints) -> bool:
    differ = np.abs(theirs - mine) > _ALIKE * theirs + SLICE_BYTES // 2
    return bool((theirs > 0).any()) and float(differ.mean()) <= _MAY_DIFFER
