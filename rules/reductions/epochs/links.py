"""How fast each link was while it was active, operator by operator (Pulse sections 2.3 and 6.2).

A link leads from the NIC of one rank to that of another. A NIC that is slow makes its slices take longer, and everybody else
waits between slices: over whole operators all have the same rate, while in an epoch whoever is not slow still reaches the
rate of its line. So the rate of an operator is the one that its busiest epochs show; its first and last epochs are filled in
part only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from forensics.rules.reductions.epochs.captures import NicCapture
from forensics.rules.reductions.epochs.operators import MovedByNic, NicOperators, PeerOperators
from forensics.rules.reductions.epochs.resent import ArrivedShares
from forensics.rules.reductions.interface import reduction

LATEST = 10
"""Operators over which a rate is taken (Pulse 6.2: k = 10)."""
# A slice of NCCL takes two epochs of 32 us of a line of 400 Gbit/s: operators of fewer epochs reach no rate.
_LEAST_EPOCHS = 8
# What comes and goes is shown by more operators.
_MANY = 100
LEAST_RESENT = 0.02
"""Of the bytes sent: on a link that loses nothing all arrive."""


@dataclass(frozen=True, slots=True)
class LinkRate:
    """What one link did in the newest moments: `rate` (bytes per second) is the median of its last operators.

    `active_rate` is the same over all epochs with data: what other traffic takes now and then shows there only. `sent` and
    `got` are what the NICs of sender and receiver moved in all in the direction in busy epochs of it (0 not known), and
    `sent_steadily` and `got_steadily` what they moved in three quarters of its epochs at least. `volume` is
    bytes per second over all of the time, `operators` how many tell the rate. `shown_by` is whose capture it is, of its `nic`,
    `span_ns` the time looked at, `source` the place. `arrived` is the share of the bytes sent that arrived, `line` what the
    lines of both ends carry, the slower one (bytes per second; None not known).
    """

    sender: int
    receiver: int
    rate: float
    volume: float
    operators: int
    span_ns: int
    shown_by: int
    source: str
    nic: str | None = None
    active_rate: float = 0.0
    sent: float = 0.0
    got: float = 0.0
    sent_steadily: float = 0.0
    got_steadily: float = 0.0
    arrived: float | None = None
    line: float | None = None

    @property
    def is_lossy(self) -> bool:
        """Whether data is lost on it and sent again."""
        return self.arrived is not None and self.arrived <= 1 - LEAST_RESENT


@dataclass(frozen=True, slots=True)
class LinkRates:
    """Links with enough traffic to have a rate, ordered by their ends; `epoch_ns` is the longest epoch of all captures.

    `links` are those between ranks, `shared` those between NICs, each by the rank that stands for it, where ranks share some.
    """

    links: tuple[LinkRate, ...] = ()
    captures: tuple[NicCapture, ...] = ()
    epoch_ns: int = 0
    shared: tuple[LinkRate, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.links)

    @property
    def nics(self) -> tuple[LinkRate, ...]:
        """Links between NICs, by the ranks that stand for them."""
        return self.shared or self.links


@reduction
def link_rates(moved: NicOperators, shares: ArrivedShares) -> LinkRates:
    """Rates of all links: by the capture of the sender, else by that of the receiver."""
    captures = tuple(nic.capture for nic in moved)
    longest = max((capture.epoch_ns for capture in captures), default=0)
    lines = _lines(captures)
    links = _stated((link for nic in moved for link in _of_nic(nic, nic.peers)), shares, lines)
    nics = _stated((link for nic in moved for link in _of_nic(nic, nic.nics)), shares, lines)
    return LinkRates(links, captures, longest, nics if any(nic.nics is not nic.peers for nic in moved) else ())


def _lines(captures: Iterable[NicCapture]) -> Mapping[int, float]:
    """What the line of each rank carries, where captures tell it; of several NICs that of the fastest."""
    found: dict[int, float] = {}
    for capture in captures:
        for rank in capture.ranks or (capture.rank,):
            if capture.line_rate:
                found[rank] = max(capture.line_rate, found.get(rank, 0.0))
    return found


def _stated(links: Iterable[LinkRate], shares: ArrivedShares, lines: Mapping[int, float]) -> tuple[LinkRate, ...]:
    """One for each two ends, in their order."""
    found: dict[tuple[int, int], LinkRate] = {}
    for link in links:
        ends = (link.sender, link.receiver)
        other = found.get(ends, link)
        best = link if _tells_more(link, other) else other
        found[ends] = replace(
            best, sent=_least(link.sent, other.sent), got=_least(link.got, other.got),
            sent_steadily=_least(link.sent_steadily, other.sent_steadily),
            got_steadily=_least(link.got_steadily, other.got_steadily), arrived=shares.get(ends),
            line=min((lines[rank] for rank in ends if rank in lines), default=None),
        )  # fmt: skip
    return tuple(found[ends] for ends in sorted(found))


def _least(one: float, other: float) -> float:
    """Of two rates the lower one that is known."""
    return min((rate for rate in (one, other) if rate > 0), default=0.0)


def _tells_more(link: LinkRate, other: LinkRate) -> bool:
    """Whether the sender tells it and the other one not; of several NICs of a rank the slowest one holds up the others."""
    by_sender, other_by = link.shown_by == link.sender, other.shown_by == other.sender
    return (by_sender, -link.rate) > (other_by, -other.rate)


def _of_nic(nic: MovedByNic, peers: Sequence[PeerOperators]) -> Iterator[LinkRate]:
    for found in peers:
        enough = found.active >= _LEAST_EPOCHS
        if enough.any():
            yield _link(nic, found, enough)


def _link(nic: MovedByNic, found: PeerOperators, enough: npt.NDArray[np.bool_]) -> LinkRate:
    capture, own, peer = nic.capture, found.own, found.peer
    sender, receiver = (own, peer) if found.direction == "send" else (peer, own)
    volume = float(found.bytes.sum()) / nic.span_ns * 1e9
    # The first epoch and the last are one together.
    means = found.bytes[enough][-_MANY:] / (found.active[enough][-_MANY:] - 1)
    latest = (each[enough][-LATEST:] for each in (found.peak, found.in_all, found.steadily))
    peak, in_all, steadily, mean = (float(np.median(each)) / capture.epoch_ns * 1e9 for each in (*latest, means))
    by_sender = own == sender
    return LinkRate(
        sender, receiver, peak, volume, int(enough.sum()), nic.span_ns, own, f"{capture.path}#peer={peer}",
        capture.nic, mean, in_all * by_sender, in_all * (not by_sender), steadily * by_sender, steadily * (not by_sender),
    )  # fmt: skip
