"""Links that stopped before others of the same use did, where nothing moves any more (Pulse section 6.2, fail-stop).

Links between the same two hosts in the same direction carry the same operators where ranks are laid out alike: the rails of a
job. One clock tells of all of them. A link that moved as much as others with every operator, and less or nothing with the last
ones, is where the job halted first, or what this held up: the link that has moved least of its operator is nearest to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NewType

import numpy as np

from forensics.rules.reductions.epochs.captures import NicCapture
from forensics.rules.reductions.epochs.cells import Ints
from forensics.rules.reductions.epochs.operators import MovedByNic, NicOperators, PeerOperators
from forensics.rules.reductions.epochs.segments import DELTA_NS
from forensics.rules.reductions.epochs.standstill import NicSilence
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.nic_users import CapturedUsers

# Operators that both moved alike before one halted, at least and at most, and how many of ten may differ.
_FEWEST, _MOST, _MAY_DIFFER = 3, 10, 0.1
# What two links move with one operator: headers and what was sent again are this share of it.
_ALIKE = 0.03
LEAST_AFTER_NS = 20_000_000
"""A host whose NICs moved data for so long after a link should have begun did not end with it."""
# Of what an operator usually moves, and of its time: links of one use end it within less of each other.
_WHOLE, _LATER = 0.97, 0.25
SLICE_BYTES = 2 << 20
"""A slice of NCCL on two channels: what moved less of an operator than this has not begun it."""


@dataclass(frozen=True, slots=True)
class HaltedLink:
    """A link that is behind others of its use: `moved` of `expected` bytes of the operator in which it halted.

    It halted at `since_ns` of the clock of `shown_by`'s host, `others` moved on.
    """

    sender: int
    receiver: int
    moved: int
    expected: int
    since_ns: int
    others: int
    shown_by: int
    nic: str
    source: str
    clock: str | None = None

    @property
    def ends(self) -> tuple[int, int]:
        """Sender and receiver."""
        return self.sender, self.receiver

    @property
    def begun(self) -> bool:
        """Whether it moved anything of its operator."""
        return self.moved > SLICE_BYTES


HaltedLinks = NewType("HaltedLinks", tuple[HaltedLink, ...])
"""Of a job of which no NIC moves anything any more."""


@dataclass(frozen=True, slots=True)
class Rail:
    """One link as the NIC of rank `own` tells it; times in ns."""

    own: int
    ends: tuple[int, int]
    capture: NicCapture
    begin: Ints
    end: Ints
    total: Ints

    def is_whole(self, at: int) -> bool:
        """Whether an operator moved as much as any of some before it did."""
        moved = np.diff(self.total, prepend=0)
        return 0 < at < len(moved) and float(moved[at]) >= _WHOLE * float(moved[max(0, at - _MOST) : at].min())

    def moved(self, times: Ints) -> Ints:
        """Bytes between neighbouring times."""
        ends = np.column_stack([self.begin, self.end]).ravel()
        done = np.column_stack([self.total - np.diff(self.total, prepend=0), self.total]).ravel()
        return np.diff(np.interp(times, ends, done, left=0.0)).astype(np.int64)


@reduction
def halted_links(moved: NicOperators, silence: NicSilence) -> HaltedLinks:
    """Compare each link with those between the same hosts; of ranks that share a NIC one may halt and another one go on."""
    if not silence:
        return HaltedLinks(())
    hosts = {rank: nic.capture.host for nic in moved for rank in nic.capture.ranks}
    groups = _rails(moved, hosts)
    until: dict[str, int] = defaultdict(int)
    for (host, *_), rails in groups.items():
        until[host] = max(until[host], *(int(rail.end.max()) for rail in rails))
    stated: dict[tuple[int, int], dict[int, HaltedLink | None]] = defaultdict(dict)
    for (host, *_), rails in groups.items():
        for rail in rails:
            teller = rail.own
            halted = _halted(rail, [other for other in rails if other is not rail], until[host])
            stated[rail.ends][teller] = halted or stated[rail.ends].get(teller)
    return HaltedLinks(tuple(link for _, tellers in sorted(stated.items()) if (link := _agreed(tellers)) is not None))


def _agreed(tellers: Mapping[int, HaltedLink | None]) -> HaltedLink | None:
    """A link that halted by all who tell of it, as the sender tells it: else a capture ended before the job did."""
    links = [link for link in tellers.values() if link is not None]
    if len(links) < len(tellers):
        return None
    return max(links, key=lambda link: link.shown_by == link.sender)


def _rails(moved: Sequence[MovedByNic], hosts: Mapping[int, str | None]) -> Mapping[tuple[str, str, str], list[Rail]]:
    """Links by the host that tells, the other one, and the direction; hosts that are not known have none."""
    found: dict[tuple[str, str, str], list[Rail]] = defaultdict(list)
    for nic in moved:
        here = hosts.get(nic.capture.rank)
        for peer in nic.peers:
            there = hosts.get(peer.peer)
            if here and there:
                found[here, there, peer.direction].append(rail_of(nic, peer))
    return found


def rail_of(nic: MovedByNic, peer: PeerOperators) -> Rail:
    """A link as this NIC tells it."""
    ends = (peer.own, peer.peer) if peer.direction == "send" else (peer.peer, peer.own)
    length = nic.capture.epoch_ns
    return Rail(peer.own, ends, nic.capture, peer.begin * length, (peer.end + 1) * length, np.cumsum(peer.bytes))


def _halted(rail: Rail, others: Sequence[Rail], until_ns: int) -> HaltedLink | None:
    """Behind at least half of the others, and two: what one does alone is a use of its own."""
    ahead = [found for other in others if (found := _behind(rail, other, until_ns)) is not None]
    if len(ahead) < 2 or 2 * len(ahead) < len(others):
        return None
    moved, expected = sorted(ahead)[len(ahead) // 2]
    capture, since = rail.capture, int(rail.end[-1])
    source = f"{capture.path}#peer={next(end for end in rail.ends if end != rail.own)}"
    return HaltedLink(*rail.ends, moved, expected, since, len(ahead), rail.own, capture.nic, source, capture.clock)


def _behind(rail: Rail, other: Rail, until_ns: int) -> tuple[int, int] | None:
    """What a link moved of the operator in which it halted, and what the other one did; None where it is not behind.

    All of an operator lies between the begins of this one and of the next. Where all of the host ended with it (`until_ns`),
    the job was ended, and who moved a little more shows nothing; unless the other one ended its own whole, much later.
    """
    marks = np.append(other.begin - DELTA_NS // 2, max(int(other.end[-1]), int(rail.end[-1])) + DELTA_NS)
    mine, theirs = rail.moved(marks), other.moved(marks)
    alike = np.abs(theirs - mine) <= _ALIKE * theirs + SLICE_BYTES // 2
    last = int(np.flatnonzero(mine > 0)[-1]) if (mine > 0).any() else -1
    at = last if last >= 0 and mine[last] < theirs[last] and not alike[last] else last + 1
    history = alike[max(0, at - _MOST) : at]
    if at >= len(theirs) or (until_ns - int(other.begin[at]) < LEAST_AFTER_NS and not _ended_later(rail, other, at)):
        return None
    if len(history) < _FEWEST or history.mean() < 1 - _MAY_DIFFER:
        return None
    lacking = int((theirs[at:] - mine[at:]).sum())
    return (int(mine[at]), int(theirs[at])) if lacking > SLICE_BYTES else None


def _ended_later(rail: Rail, other: Rail, at: int) -> bool:
    """Whether a link stopped within an operator that the other one went on with for long, until it was whole."""
    if not other.is_whole(at):
        return False
    begin, end, stopped = int(other.begin[at]), int(other.end[at]), int(rail.end[-1])
    return stopped > begin and end - stopped >= max(2 * DELTA_NS, _LATER * (end - begin))


def halted_ends(links: Sequence[HaltedLink], users: CapturedUsers) -> Iterator[tuple[tuple[int, ...], tuple[HaltedLink, ...]]]:
    """Ranks that account for halted links, with these: one that all have in common, else those of a NIC that all have in
    common, else the two ends of the only one.

    Those that have not begun their operator come first, then those that moved least of it.
    """
    still = [link for link in links if not link.begun]
    least = min((link.moved for link in links), default=0)
    nearest = still or [link for link in links if link.moved <= least + SLICE_BYTES]
    common = set.intersection(*({*link.ends} for link in nearest)) if nearest else set[int]()
    nics = set.intersection(*({users.first(end) for end in link.ends} for link in nearest)) if nearest else set[int]()
    if common and len(common) <= 2:
        yield tuple(sorted(common)), tuple(nearest)
    elif len(nics) == 1:
        ends = {end for link in nearest for end in link.ends}
        yield users.together(nics.pop(), ends), tuple(nearest)
