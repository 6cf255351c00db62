"""The operators that each NIC moved to and from each peer in the newest moments, and when it moved anything at all.

Only the newest moments that nearly all captures have are looked at, so that all links are compared over the same time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NewType

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.epochs.captures import NicCapture, NicCaptures
from forensics.rules.reductions.epochs.cells import Cells, Ints, by_nic, cells_by_peer, ends_of, in_all
from forensics.rules.reductions.epochs.mirrors import MirroredPeers
from forensics.rules.reductions.epochs.segments import DELTA_NS, Segments, quantile, segments
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.nic_users import CapturedUsers

# The rate that all but a twentieth of the epochs do not exceed: epochs with resent data lie above it.
_BUSIEST = 0.95
# And the one that three quarters of them reach.
_STEADY = 0.25
PAUSE_NS = 500_000
"""A pause: the gaps that one slice leaves to another are shorter by far."""
# Of the captures: so many may reach back less far than what is looked at.
_SHORTER = 0.1
# Epochs from one to the next: that is no gap, however long they are.
_NEXT = 1


@dataclass(frozen=True, slots=True)
class PeerOperators:
    """Operators of rank `own` with one peer in one direction, oldest first: epochs `begin` and `end`, `bytes`, number of
    `active` epochs, bytes of a busy one (`peak`), and all that the NIC moved in the direction in epochs in which this peer had
    some: in a busy one (`in_all`), and what it had in three quarters of them (`steadily`); arrays of the same length.

    `stopped` and `resumed` are the epochs before and after each pause of half a millisecond or more, also within an operator.
    """

    own: int
    peer: int
    direction: str
    begin: Ints
    end: Ints
    bytes: Ints
    active: Ints
    peak: Ints
    in_all: Ints
    steadily: Ints
    stopped: Ints
    resumed: Ints


@dataclass(frozen=True, slots=True)
class MovedByNic:
    """What one NIC moved from epoch `first` to `last` (included) of a capture of it: with each peer, in each direction.

    `peers` are of each rank that has the NIC, `nics` of all of them together and with all that have the NIC at the other end:
    the same where nobody shares one.
    `quiet_ns` is the time without data at the end, `pause_ns` the second longest one between data before that (0 without).
    """

    capture: NicCapture
    first: int
    last: int
    peers: tuple[PeerOperators, ...]
    nics: tuple[PeerOperators, ...]
    quiet_ns: int
    pause_ns: int

    @property
    def span_ns(self) -> int:
        """The time looked at."""
        return (self.last - self.first + 1) * self.capture.epoch_ns


NicOperators = NewType("NicOperators", tuple[MovedByNic, ...])
"""All NICs of ranks whose captures say what time they cover."""


@reduction
def nic_operators(
    connection: DuckDBPyConnection, captures: NicCaptures, users: CapturedUsers, mirrored: MirroredPeers
) -> NicOperators:
    """Cut the traffic of all captures into operators, with the other ends that are stated or that `mirrored` found."""
    stated = [capture for capture in captures if capture.is_dated]
    if not stated:
        return NicOperators(())
    span = _common_span(stated)
    found = (_moved(cells_by_peer(connection, nic), nic[0], span, users) for nic in _by_nic(stated).values())
    return NicOperators(tuple(found))


def _by_nic(captures: Sequence[NicCapture]) -> Mapping[tuple[int, str], list[NicCapture]]:
    """Captures of each NIC with the shortest epochs that it has, the longest capture first."""
    found: dict[tuple[int, str], list[NicCapture]] = defaultdict(list)
    for capture in sorted(captures, key=lambda each: (each.epoch_ns, -(each.epochs or 0), each.path)):
        mine = found[capture.rank, capture.nic]
        if not mine or mine[0].epoch_ns == capture.epoch_ns:
            mine.append(capture)
    return found


def _common_span(captures: Sequence[NicCapture]) -> int:
    """ns at the end of all captures that are looked at: nearly all reach back so far, and a cut one does not shorten it."""
    spans = [capture.epoch_ns * (capture.epochs or 0) for capture in captures]
    return int(np.quantile(spans, _SHORTER, method="higher"))


def _moved(cells: Cells, capture: NicCapture, span: int, users: CapturedUsers) -> MovedByNic:
    first, epochs = capture.first or 0, capture.epochs or 0
    begin, last = max(first, first + epochs - span // capture.epoch_ns), first + epochs - 1
    recent = cells.epoch >= begin
    cells = Cells(cells.series[recent], cells.epoch[recent], cells.bytes[recent])
    together = by_nic(cells, {rank: users.first(rank) for rank in users.shared}, capture.rank)
    delta = max(DELTA_NS // capture.epoch_ns, _NEXT + 1)
    found = segments(cells, delta, last)
    quiet, pause = (epochs * capture.epoch_ns for epochs in _pauses(found, begin, last))
    pause_epochs = max(PAUSE_NS // capture.epoch_ns, _NEXT + 1)
    peers = _by_peer(cells, found, pause_epochs)
    nics = peers if together is cells else _by_peer(together, segments(together, delta, last), pause_epochs)
    return MovedByNic(capture, begin, last, peers, nics, quiet, pause)


def _by_peer(cells: Cells, found: Segments, pause: int) -> tuple[PeerOperators, ...]:
    together = in_all(cells)
    peaks = quantile(cells, found, _BUSIEST)
    most, steadily = (peaks, peaks) if together is cells else (quantile(together, found, part) for part in (_BUSIEST, _STEADY))
    columns = (found.begin, found.end, found.bytes, found.active, peaks, most, steadily)
    at = np.flatnonzero((np.diff(cells.epoch) >= pause) & (np.diff(cells.series) == 0))
    pauses = (cells.epoch[at], cells.epoch[at + 1])
    return tuple(
        PeerOperators(
            *ends_of(series),
            *(each[found.series == series] for each in columns),
            *(each[cells.series[at] == series] for each in pauses),
        )
        for series in np.unique(found.series).tolist()
    )


def _pauses(found: Segments, begin: int, last: int) -> tuple[int, int]:
    """Epochs without data at the end, and in the second longest pause between operators of any peer."""
    if not len(found):
        return last - begin + 1, 0
    order = np.argsort(found.begin, kind="stable")
    reached = np.maximum.accumulate(found.end[order])
    pauses = np.sort(found.begin[order][1:] - reached[:-1] - 1)
    return int(max(last - reached[-1], 0)), int(max(pauses[-2], 0)) if len(pauses) > 1 else 0
