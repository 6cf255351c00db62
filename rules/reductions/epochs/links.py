"""How fast each link was while it was active, operator by operator (Pulse sections 2.3 and 6.2).

A link leads from the NIC of one rank to that of another. A NIC that is slow makes its slices take longer, and everybody else
waits between slices: over whole operators all have the same rate, while in an epoch whoever is not slow still reaches the
rate of its line. So the rate of an operator is the one that its busiest epochs show; its first and last epochs are filled in
part only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.epochs.captures import NicCapture, NicCaptures, name_peers
from forensics.rules.reductions.epochs.cells import DIRECTIONS, Cells, Ints, cells_by_peer
from forensics.rules.reductions.epochs.segments import DELTA_NS, Segments, quantile, segments
from forensics.rules.reductions.interface import reduction

LATEST = 10
"""Operators over which a rate is taken (Pulse 6.2: k = 10)."""
# The rate that all but a twentieth of the epochs do not exceed: epochs with resent data lie above it.
_BUSIEST = 0.95
# A slice of NCCL takes two epochs of 32 us of a line of 400 Gbit/s: operators of fewer epochs reach no rate.
_LEAST_EPOCHS = 8
# Of the captures: so many may reach back less far than what is looked at.
_SHORTER = 0.1
# Epochs from one to the next: that is no gap, however long they are.
_NEXT = 1
# Years of epochs: what says that it captured more is damaged.
_MOST_EPOCHS = 1 << 48


@dataclass(frozen=True, slots=True)
class LinkRate:
    """What one link did in the newest moments: `rate` (bytes per second) is the median of its last operators.

    `volume` is bytes per second over all of the time, `operators` how many tell
    the rate. `told_by` is whose capture it is, of its `nic`, `span_ns` the time looked at, `source` the place.
    """

    sender: int
    receiver: int
    rate: float
    volume: float
    operators: int
    span_ns: int
    told_by: int
    source: str
    nic: str | None = None


@dataclass(frozen=True, slots=True)
class LinkRates:
    """Links with enough traffic to have a rate, ordered by their ends; `epoch_ns` is the longest epoch of all captures."""

    links: tuple[LinkRate, ...] = ()
    captures: tuple[NicCapture, ...] = ()
    epoch_ns: int = 0

    def __bool__(self) -> bool:
        return bool(self.links)


@dataclass(frozen=True, slots=True)
class _Window:
    """The epochs of a capture that are looked at: from `begin` on, `last` included."""

    begin: int
    last: int


@reduction
def link_rates(connection: DuckDBPyConnection, captures: NicCaptures) -> LinkRates:
    """Rates of all links: by the capture of the sender, else by that of the receiver."""
    told = [capture for capture in captures if capture.first is not None and 0 < (capture.epochs or 0) < _MOST_EPOCHS]
    if not told:
        return LinkRates()
    name_peers(connection)
    span = _common_span(told)
    found: dict[tuple[int, int], LinkRate] = {}
    for nic in _by_nic(told).values():
        for link in _of_nic(cells_by_peer(connection, nic), nic[0], span):
            ends = (link.sender, link.receiver)
            if ends not in found or _tells_more(link, found[ends]):
                found[ends] = link
    ordered = tuple(found[ends] for ends in sorted(found))
    return LinkRates(ordered, tuple(told), max(capture.epoch_ns for capture in told))


def _tells_more(link: LinkRate, other: LinkRate) -> bool:
    """Whether the sender tells it and the other one not; of several NICs of a rank the slowest one holds up the others."""
    by_sender, other_by = link.told_by == link.sender, other.told_by == other.sender
    return (by_sender, -link.rate) > (other_by, -other.rate)


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


def _of_nic(cells: Cells, capture: NicCapture, span: int) -> Iterator[LinkRate]:
    first, epochs = capture.first or 0, capture.epochs or 0
    window = _Window(max(first, first + epochs - span // capture.epoch_ns), first + epochs - 1)
    recent = cells.epoch >= window.begin
    cells = Cells(cells.series[recent], cells.epoch[recent], cells.bytes[recent])
    found = segments(cells, max(DELTA_NS // capture.epoch_ns, _NEXT + 1), window.last)
    peaks = quantile(cells, found, _BUSIEST)
    for series in np.unique(found.series).tolist():
        link = _link(series, found, peaks, capture, window)
        if link is not None:
            yield link


def _link(series: int, found: Segments, peaks: Ints, capture: NicCapture, window: _Window) -> LinkRate | None:
    mine = found.series == series
    enough = mine & (found.active >= _LEAST_EPOCHS)
    if not enough.any():
        return None
    rate = float(np.median(peaks[enough][-LATEST:])) / capture.epoch_ns * 1e9
    peer, direction = series // len(DIRECTIONS), DIRECTIONS[series % len(DIRECTIONS)]
    sender, receiver = (capture.rank, peer) if direction == "send" else (peer, capture.rank)
    epochs = window.last - window.begin + 1
    volume = float(found.bytes[mine].sum()) / epochs / capture.epoch_ns * 1e9
    span, source = epochs * capture.epoch_ns, f"{capture.path}#peer={peer}"
    return LinkRate(sender, receiver, rate, volume, int(enough.sum()), span, capture.rank, source, capture.nic)
