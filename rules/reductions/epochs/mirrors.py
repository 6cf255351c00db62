"""Who is at the other end of queue pairs of which nobody tells it: traffic that mirrors each other (Pulse 5.1 has a map).

What one end sends the other one receives, epoch for epoch, but for the clocks of the two hosts and where their epochs begin.
Members of a collective move the same volumes in nearly the same time; how slices follow each other still differs from link to
link. So a queue pair belongs to that of the NIC that fits by far best, both ways round: where others fit nearly as well, as
they do where all traffic is alike, nothing is stated. Pairs that are sure bind the clocks of hosts, and all are compared once
more at these distances alone. What a rank passes on looks much like what it received: where the NIC of any rank was not
captured, those on both sides of it would seem to exchange data, and nothing is stated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import networkx as nx
import numpy as np
import numpy.typing as npt
from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import Confidence, Evidence, Finding
from forensics.rules.reductions.epochs.captures import PEERS_TABLE, NicCapture, NicCaptures, name_peers
from forensics.rules.reductions.epochs.cells import LEAST_BYTES
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.nic_users import CapturedUsers
from forensics.rules.reductions.ranks.roster import Roster

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Epochs that are compared, by how many of them clocks may be apart, and by how many more than sure pairs have shown.
_EPOCHS, _MOST_APART, _NEAR = 8192, 512, 2
# Bytes of a series, and by how much volumes may differ: clocks that are apart cut other parts out of the same traffic.
_LEAST_SERIES, _DIFFER = 16 << 20, 0.1
# Of the squares of what is received, what may be left over; and how many times less than with any other NIC.
_LEFT_OVER, _BETTER = 0.05, 4.0
# Less is how exactly it is worked out, and shows nothing apart.
_LEAST_LEFT = 1e-5
_MOST_PAIRS = 1 << 15

_ENDLESS = f"""
SELECT DISTINCT source_id FROM captures
WHERE source_id NOT IN (SELECT source_id FROM {PEERS_TABLE})
AND source_id NOT IN (SELECT source_id FROM queue_pairs WHERE remote_nic IS NOT NULL OR remote_queue_pair IS NOT NULL)
"""
_RUNS = """
SELECT source_id, capture_id, queue_pair, direction, first_epoch, values FROM nic_epochs
JOIN (SELECT unnest($sources) AS source_id, unnest($captures) AS capture_id) USING (source_id, capture_id)
ORDER BY source_id, capture_id, queue_pair, direction, first_epoch
"""
_TELL = f"INSERT INTO {PEERS_TABLE} (source_id, queue_pair, own, peer) VALUES (?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Mirror:
    """A queue pair that sends, and the one that receives the same; `left` is what is left over of the squares of the bytes of
    each epoch, `next_best` the same with the best of the other NICs (infinite where none moved as much)."""

    sender: NicCapture
    receiver: NicCapture
    queue_pairs: tuple[str, str]
    left: float
    next_best: float

    @property
    def rows(self) -> list[tuple[int, str, int, int]]:
        """Source, queue pair, its rank, and the rank at the other end, of both."""
        one, other = self.sender, self.receiver
        sends, receives = self.queue_pairs
        return [(one.source_id, sends, one.rank, other.rank), (other.source_id, receives, other.rank, one.rank)]


@dataclass(frozen=True, slots=True)
class MirroredPeers:
    """Other ends that traffic alone tells, and of how many series with data (`unstated`) it tells none."""

    mirrors: tuple[Mirror, ...] = ()
    unstated: int = 0

    def __bool__(self) -> bool:
        return bool(self.mirrors)

    def doubted(self, finding: Finding) -> Finding:
        """The same finding; a suspicion with the worst fit beside it where traffic alone tells connections of its ranks."""
        ranks = {*finding.ranks}
        mine = [each for each in self.mirrors if not ranks or ranks & {each.sender.rank, each.receiver.rank}]
        if not mine:
            return finding
        worst = max(mine, key=lambda each: each.left)
        beside = f", {worst.next_best:.2%} with the next best NIC" if np.isfinite(worst.next_best) else ""
        said = (
            f"by traffic alone which NICs exchange data; queue pairs of these ranks that mirror others: {len(mine)}, "
            f"epoch by epoch, where all but {worst.left:.2%} of the squares agree{beside}"
        )
        evidence = (*finding.evidence, Evidence(said, worst.sender.path, supports=False))
        return replace(finding, confidence=Confidence.SUSPECT, evidence=evidence)


@dataclass(frozen=True, slots=True)
class _Series:
    """What a queue pair moved in one direction: bytes by epoch of the time that is compared."""

    capture: NicCapture
    queue_pair: str
    direction: str
    moved: Floats


@dataclass(frozen=True, slots=True)
class _Fits:
    """How well sent series (rows) fit received ones (columns): what is `left` over (infinite: not compared), and by how many
    epochs the clock of the receiver is `ahead`."""

    sent: Sequence[_Series]
    received: Sequence[_Series]
    left: Floats
    ahead: Ints


@reduction
def mirrored_peers(
    connection: DuckDBPyConnection, captures: NicCaptures, users: CapturedUsers, roster: Roster
) -> MirroredPeers:
    """Name the other ends of queue pairs, in the table of peers: those that are stated, and those that traffic tells.

    Captures are compared that tell no other end of any of their queue pairs, and have epochs of one length by realtime clocks:
    those of all ranks, or none.
    """
    if not any(capture.is_dated for capture in captures):
        return MirroredPeers()
    name_peers(connection, users)
    endless = _endless(connection, captures)
    captured = {rank for each in endless for rank in each.ranks}
    if not captured or not {*roster.ranks, *range(max(captured))} <= captured:
        return MirroredPeers()
    series = list(_series(connection, endless))
    sent, received = ([one for one in series if one.direction == way] for way in ("send", "recv"))
    if not sent or not received or len(sent) * len(received) > _MOST_PAIRS:
        return MirroredPeers((), len(series))
    fits = _compared(sent, received, {})
    mirrors = tuple(_mirrors(_compared(sent, received, _distances(fits))))
    if rows := sorted({row for each in mirrors for row in each.rows}):
        connection.executemany(_TELL, rows)
    return MirroredPeers(mirrors, len(series) - 2 * len(mirrors))


def _endless(connection: DuckDBPyConnection, captures: Sequence[NicCapture]) -> list[NicCapture]:
    """Captures that tell no other end, of those with the epochs that most of them have."""
    sources = {source for (source,) in rows_of(connection, "captures", _ENDLESS)}
    found = [each for each in captures if each.is_dated and each.clock == "realtime" and each.source_id in sources]
    lengths = [each.epoch_ns for each in found]
    return [each for each in found if each.epoch_ns == max(lengths, key=lengths.count)]


def _series(connection: DuckDBPyConnection, captures: Sequence[NicCapture]) -> Iterator[_Series]:
    """What each queue pair moved in the newest time in which half of them did, where it is enough."""
    by_number = {(each.source_id, each.capture_id): each for each in captures}
    asked = {"sources": [key[0] for key in by_number], "captures": [key[1] for key in by_number]}
    runs: dict[tuple[int, int, str, str], list[tuple[int, Floats]]] = defaultdict(list)
    for source, number, queue_pair, direction, first, values in connection.execute(_RUNS, asked).fetchall():
        runs[source, number, queue_pair, direction].append((first, np.asarray(values, np.float64)))
    ends = [first + len(values) for found in runs.values() for first, values in found[-1:] if values.sum() >= LEAST_BYTES]
    begin = int(np.median(ends)) - _EPOCHS if ends else 0
    for (source, number, queue_pair, direction), found in runs.items():
        moved = _within(found, begin)
        if moved.sum() >= _LEAST_SERIES:
            yield _Series(by_number[source, number], queue_pair, direction, moved)


def _within(runs: Sequence[tuple[int, Floats]], begin: int) -> Floats:
    """Bytes by epoch from `begin` on; grants of buffers and acknowledgements are none."""
    moved = np.zeros(_EPOCHS)
    for first, values in runs:
        low, high = max(first, begin), min(first + len(values), begin + _EPOCHS)
        if low < high:
            moved[low - begin : high - begin] = values[low - first : high - first]
    return np.where(moved >= LEAST_BYTES, moved, 0.0)


def _compared(sent: Sequence[_Series], received: Sequence[_Series], distances: Mapping[tuple[str, str], int]) -> _Fits:
    """Fit all pairs of NICs; those of hosts of which `distances` tells (epochs) at these alone."""
    left, ahead = np.full((len(sent), len(received)), np.inf), np.zeros((len(sent), len(received)), np.int64)
    spectra = np.array([np.fft.rfft(one.moved, 2 * _EPOCHS) for one in received])
    volumes, powers = (
        np.array(each)
        for each in zip(*((one.moved.sum(), np.append(0.0, np.cumsum(one.moved**2))) for one in received), strict=True)
    )
    for row, one in enumerate(sent):
        alike = np.abs(volumes - one.moved.sum()) <= _DIFFER * np.maximum(volumes, one.moved.sum())
        apart = np.array([not _is_same_nic(one.capture, other.capture) for other in received])
        columns = np.flatnonzero(alike & apart)
        if len(columns):
            rest = _left_over(one.moved, spectra[columns], powers[columns])
            for at, column in enumerate(columns.tolist()):
                known = distances.get((one.capture.host or "", received[column].capture.host or ""))
                left[row, column], ahead[row, column] = _least(rest[at], known)
    return _Fits(sent, received, left, ahead)


def _is_same_nic(one: NicCapture, other: NicCapture) -> bool:
    return (one.rank, one.nic) == (other.rank, other.nic)


def _left_over(sent: Floats, spectra: npt.NDArray[np.complex128], powers: Floats) -> Floats:
    """What is left of the squares of each received series at each distance of the clocks (series x distances).

    It is what is no sum of parts of what was sent in an epoch and in the one before: epochs of two NICs do not begin together.
    `powers` are sums of squares up to each epoch. The time counts that all show at every distance.
    """
    now, before = (_middle(each) for each in (sent, np.append(0.0, sent[:-1])))
    whole, rest = (_meets(each, spectra) for each in (now, before))
    squares, both = (float((now**2).sum()), float((before**2).sum())), float((now * before).sum())
    scale = max(squares[0] * squares[1] - both**2, 1.0)
    first = np.maximum((squares[1] * whole - both * rest) / scale, 0.0)
    second = np.maximum((squares[0] * rest - both * whole) / scale, 0.0)
    ahead = np.arange(-_MOST_APART, _MOST_APART + 1)
    power = powers[:, _EPOCHS - _MOST_APART + ahead] - powers[:, _MOST_APART + ahead]
    found = power - 2 * (first * whole + second * rest) + squares[0] * first**2 + squares[1] * second**2
    return np.maximum((found + 2 * both * first * second) / np.maximum(power, 1.0), _LEAST_LEFT)


def _middle(values: Floats) -> Floats:
    """What others show as well, however far their clocks are apart."""
    found = np.zeros(_EPOCHS)
    found[_MOST_APART : _EPOCHS - _MOST_APART] = values[_MOST_APART : _EPOCHS - _MOST_APART]
    return found


def _meets(values: Floats, spectra: npt.NDArray[np.complex128]) -> Floats:
    """Sums of products with each series, at each distance of the clocks."""
    found = np.fft.irfft(np.conj(np.fft.rfft(values, 2 * _EPOCHS)) * spectra, axis=1)
    return np.concatenate([found[:, -_MOST_APART:], found[:, : _MOST_APART + 1]], axis=1)


def _least(left: Floats, known: int | None) -> tuple[float, int]:
    """The smallest one, near a known distance if there is one, and its distance."""
    low, high = (0, len(left)) if known is None else (max(known + _MOST_APART - _NEAR, 0), known + _MOST_APART + _NEAR + 1)
    at = low + int(np.argmin(left[low:high]))
    return float(left[at]), at - _MOST_APART


def _mirrors(fits: _Fits) -> Iterator[Mirror]:
    """Pairs of which each fits the NIC of the other one by far better than any other NIC."""
    rows = [_best(fits.left[row], fits.received) for row in range(len(fits.sent))]
    columns = [_best(fits.left[:, column], fits.sent) for column in range(len(fits.received))]
    for row, found in enumerate(rows):
        back = columns[found[0]] if found else None
        if found and back and _is_same_nic(fits.sent[back[0]].capture, fits.sent[row].capture):
            one, other = fits.sent[row], fits.received[found[0]]
            left, next_best = float(fits.left[row, found[0]]), min(found[1], back[1])
            yield Mirror(one.capture, other.capture, (one.queue_pair, other.queue_pair), left, next_best)


def _best(left: Floats, series: Sequence[_Series]) -> tuple[int, float] | None:
    """The place of the one that fits best, and what the best of the other NICs leaves over; None where it is not much more."""
    best = int(np.argmin(left))
    others = [value for value, one in zip(left, series, strict=True) if not _is_same_nic(one.capture, series[best].capture)]
    next_best = float(min(others, default=np.inf))
    return (best, next_best) if left[best] <= min(_LEFT_OVER, next_best / _BETTER) else None


def _distances(fits: _Fits) -> dict[tuple[str, str], int]:
    """By two hosts, how many epochs the clock of the second one is ahead, by sure pairs and ways of them."""
    shown: dict[tuple[str, str], list[int]] = defaultdict(list)
    rows = {(one.capture.source_id, one.queue_pair): row for row, one in enumerate(fits.sent)}
    columns = {(one.capture.source_id, one.queue_pair): column for column, one in enumerate(fits.received)}
    for each in _mirrors(fits):
        places = rows[each.sender.source_id, each.queue_pairs[0]], columns[each.receiver.source_id, each.queue_pairs[1]]
        shown[each.sender.host or "", each.receiver.host or ""].append(int(fits.ahead[places]))
    clocks = nx.DiGraph()
    for (one, other), ahead in shown.items():
        clocks.add_edge(one, other, ahead=int(np.median(ahead)))
        clocks.add_edge(other, one, ahead=-int(np.median(ahead)))
    return {
        (one, other): sum(clocks.edges[step]["ahead"] for step in pairwise(way))
        for one, ways in nx.all_pairs_shortest_path(clocks)
        for other, way in ways.items()
    }
