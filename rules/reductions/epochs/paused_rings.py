"""Whose sends stop first when a ring pauses within an operator, and everybody else's only for want of data.

Where the proxy or the GPU of a rank stops for some milliseconds, its NIC first stops to send. It goes on receiving until the
buffers that it granted are full (eight slices of NCCL); its successor has received nothing for a moment when it has passed
on the last slice, and so on round the ring. So one rank stops to send before it stops to receive, and all behind it the other
way round. In a long ring those before it may fill the buffers of the next one before the want of data comes round: they too
stop to send first, and the last such rank in the direction of the data is where it began. Where both meet neither is first.
Both directions of a NIC have one clock, so that none has to be compared with another host's (Pulse 6.2: long duration at a
normal start and a normal actual communication time is a bottleneck of CPU or GPU inside the collective).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forensics.rules.reductions.epochs.links import LinkRates
from forensics.rules.reductions.epochs.operators import PAUSE_NS, MovedByNic, NicOperators, PeerOperators
from forensics.rules.reductions.epochs.slow_links import uses
from forensics.rules.reductions.interface import reduction

Floats = npt.NDArray[np.float64]

# Longer pauses are those between operators; and the ranks of a ring, pauses that a NIC has and how many of ten must agree.
_MOST_PAUSE_NS = 100 * PAUSE_NS
_FEWEST_RANKS, _FEWEST_PAUSES, _AGREE = 3, 8, 0.6
# Of the time: a ring that stands for longer than it moves pauses between operators, where each has less or more to send.
_MOST_PAUSED = 0.5
# Of a pause: by more the two directions of a NIC do not stop for the same reason, but between messages.
_MOST_APART = 0.5
# From the one that stops by itself on, in the direction of the data: those that lack data, one at which want of data and full
# buffers may meet, and those that run into full buffers.
_FROM_ONE = re.compile("sr+-?s*")
# What a NIC receives after it stopped to send: three slices of 1 MiB take as long at 25 GB/s; and two epochs are rounding.
_LEAD_NS, _LEAD_EPOCHS = 120_000, 3


@dataclass(frozen=True, slots=True)
class PausedRank:
    """A rank whose sends to `successor` stop first: in `leads` of `pauses` pauses of its ring, by `lead_ns` (median).

    `typical_ns` is the median pause, `share` of the time is lost to those that it leads. `ring` are all ranks, `source` its
    capture.
    """

    rank: int
    successor: int
    ring: tuple[int, ...]
    pauses: int
    leads: int
    lead_ns: float
    typical_ns: float
    share: float
    source: str


@dataclass(frozen=True, slots=True)
class PausedRings:
    """Rings that pause within operators: `begun` by one rank each, `open` those of which nobody is stated, and all `rings`."""

    begun: tuple[PausedRank, ...] = ()
    open: tuple[tuple[int, ...], ...] = ()
    rings: tuple[tuple[int, ...], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.begun)


@dataclass(frozen=True, slots=True)
class _Pauses:
    """Pauses that one NIC has in both directions: by how much it stopped to send before it stopped to receive, and their length
    (ns)."""

    lead: Floats
    length: Floats
    least: float

    @property
    def order(self) -> str:
        """Whether the NIC stops to send first (`s`), to receive first (`r`), or neither in most pauses (`-`)."""
        if len(self.lead) < _FEWEST_PAUSES:
            return "-"
        if float((self.lead >= self.least).mean()) >= _AGREE:
            return "s"
        return "r" if float((self.lead < 0).mean()) >= _AGREE else "-"


@reduction
def paused_rings(moved: NicOperators, rates: LinkRates) -> PausedRings:
    """Rings of NICs, each of which has one successor among the links of one use."""
    nics = {nic.capture.rank: nic for nic in moved}
    rings = [ring for links in uses(rates.nics) for ring in _rings([(link.sender, link.receiver) for link in links])]
    begun, unclear = list[PausedRank](), list[tuple[int, ...]]()
    for ring in rings:
        pauses = [_pauses(nics.get(rank), ring[at - 1], ring[(at + 1) % len(ring)]) for at, rank in enumerate(ring)]
        if not any(len(each.lead) >= _FEWEST_PAUSES for each in pauses):
            continue
        first = [
            at for at in range(len(ring)) if _FROM_ONE.fullmatch("".join(each.order for each in (*pauses[at:], *pauses[:at])))
        ]
        if len(first) == 1 and pauses[first[0]].length.sum() <= _MOST_PAUSED * nics[ring[first[0]]].span_ns:
            begun.append(_found(nics[ring[first[0]]], ring, first[0], pauses[first[0]]))
        else:
            unclear.append(ring)
    return PausedRings(tuple(begun), tuple(unclear), tuple(rings))


def _rings(links: Sequence[tuple[int, int]]) -> Iterator[tuple[int, ...]]:
    """Ranks in the direction of the data, the lowest first; who sends to several, or gets from several, is of no ring."""
    senders, receivers = ([link[way] for link in links] for way in (0, 1))
    after = dict(links)
    alone = {rank for rank in after if senders.count(rank) == 1 and receivers.count(rank) == 1}
    while alone:
        ring = [min(alone)]
        while (following := after[ring[-1]]) in alone and following not in ring:
            ring.append(following)
        alone -= {*ring}
        if following == ring[0] and len(ring) >= _FEWEST_RANKS:
            yield tuple(ring)


def _pauses(nic: MovedByNic | None, before: int, after: int) -> _Pauses:
    """Each pause of what a NIC sends with the one of what it receives in nearly the same time, where there is one."""
    sent, got = (series(nic, peer, way) for peer, way in ((after, "send"), (before, "recv")))
    if nic is None or sent is None or got is None or not len(sent.stopped) or not len(got.stopped):
        return _Pauses(np.empty(0), np.empty(0), 0.0)
    first = np.searchsorted(got.resumed, sent.stopped, side="right")
    beyond = np.searchsorted(got.stopped, sent.resumed, side="left")
    one = np.flatnonzero(beyond - first == 1)
    other, epoch_ns = first[one], nic.capture.epoch_ns
    lengths = [np.asarray((each.resumed - each.stopped)[at] * epoch_ns, np.float64) for each, at in ((sent, one), (got, other))]
    lead = np.asarray((got.stopped[other] - sent.stopped[one]) * epoch_ns, np.float64)
    within = (np.maximum(*lengths) <= _MOST_PAUSE_NS) & (np.abs(lead) <= _MOST_APART * np.minimum(*lengths))
    return _Pauses(lead[within], lengths[0][within], float(max(_LEAD_NS, _LEAD_EPOCHS * epoch_ns)))


def series(nic: MovedByNic | None, peer: int, direction: str) -> PeerOperators | None:
    """What a NIC moves with the NIC of one peer in one direction, None without any."""
    found = (each for each in (nic.nics if nic else ()) if (each.peer, each.direction) == (peer, direction))
    return next(found, None)


def _found(nic: MovedByNic, ring: tuple[int, ...], at: int, pauses: _Pauses) -> PausedRank:
    own = pauses.lead >= pauses.least
    share = float(pauses.length[own].sum()) / nic.span_ns
    lead, typical = (float(np.median(each[own])) for each in (pauses.lead, pauses.length))
    successor = ring[(at + 1) % len(ring)]
    source = f"{nic.capture.path}#peer={successor}"
    return PausedRank(ring[at], successor, ring, len(own), int(own.sum()), lead, typical, share, source)
