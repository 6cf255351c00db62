"""Who begins the operators of a ring or exchange last, and makes the others wait for it (Pulse 6.2: a delayed start).

A link moves nothing before both its ends are there: of a rank that is late all links begin late, those of all others begin
together and stop when their buffers are full. So each NIC that has a link with the late one begins it later than its others,
and no NIC begins any other link so: that of the late one begins all at once. Both directions of a NIC have one clock, so that
none has to be compared with another host's. Stages of a pipeline begin one after the other, and no two links of it together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NewType

import networkx as nx
import numpy as np
import numpy.typing as npt

from forensics.rules.reductions.epochs.cells import Ints
from forensics.rules.reductions.epochs.operators import MovedByNic, NicOperators, PeerOperators
from forensics.rules.reductions.epochs.paused_rings import PausedRings, series
from forensics.rules.reductions.interface import reduction

Floats = npt.NDArray[np.float64]
Links = Mapping[int, Mapping[int, PeerOperators]]
"""What each NIC of a ring or exchange moves with each other one that it has a link with, by their ranks."""

# A begin that is later by less is the scheduler's; and a rank that is late a few times only is no straggler.
_LEAST_NS, _FEWEST = 1_000_000, 4
# Of what the late one costs: what others may begin apart, and by how much those that tell of it may differ. One delay is at
# most half of all.
_ALIKE, _MOST_OF_ONE = 0.25, 0.5
# Links of each member of an exchange, and members: all links of each are compared with each other. Fewer bytes are what
# programs tell each other.
_FEWEST_LINKS, _MOST_MEMBERS, _LEAST_BYTES = 3, 48, 1 << 20


@dataclass(frozen=True, slots=True)
class LateStart:
    """A rank without which the other `members` begin `times` operators, `typical_ns` earlier (median): `share` of the time.

    `shown_by` are those that have links with it, `load` is what it moves times an even share, `source` the capture of one.
    """

    rank: int
    members: tuple[int, ...]
    shown_by: tuple[int, ...]
    times: int
    typical_ns: float
    share: float
    load: float
    source: str


LateStarts = NewType("LateStarts", tuple[LateStart, ...])
"""One of each ring or exchange in which somebody is late, by rank."""


@reduction
def late_starts(moved: NicOperators, rings: PausedRings) -> LateStarts:
    """Rings and exchanges of NICs all of which were captured."""
    nics = {nic.capture.rank: nic for nic in moved}
    groups = [*_rings(rings, nics), *_exchanges(nics)]
    found = [late for links in groups if (late := _late(links, nics)) is not None]
    return LateStarts(tuple(sorted(found, key=lambda late: (late.rank, late.members))))


def _rings(rings: PausedRings, nics: Mapping[int, MovedByNic]) -> Iterator[Links]:
    for ring in rings.rings:
        links: dict[int, dict[int, PeerOperators]] = {}
        for at, rank in enumerate(ring):
            before, after = ring[at - 1], ring[(at + 1) % len(ring)]
            ways = ((before, series(nics.get(rank), before, "recv")), (after, series(nics.get(rank), after, "send")))
            links[rank] = {peer: found for peer, found in ways if found is not None}
        if all(len(found) > 1 for found in links.values()):
            yield links


def _exchanges(nics: Mapping[int, MovedByNic]) -> Iterator[Links]:
    """Ranks that send to each other, several to each."""
    sent = {rank: {each.peer: each for each in nic.nics if each.direction == "send"} for rank, nic in nics.items()}
    large = {(rank, peer) for rank, peers in sent.items() for peer, each in peers.items() if each.bytes.sum() >= _LEAST_BYTES}
    mutual = nx.Graph([(a, b) for a, b in sorted(large) if a < b and (b, a) in large])
    for members in nx.connected_components(mutual):
        is_whole = all(len(mutual[rank]) >= _FEWEST_LINKS for rank in members)
        if is_whole and len(members) <= _MOST_MEMBERS:
            yield {rank: {peer: sent[rank][peer] for peer in sorted(mutual[rank])} for rank in sorted(members)}


def _late(links: Links, nics: Mapping[int, MovedByNic]) -> LateStart | None:
    """The one rank of whom all that have links with it tell the same delay, and nobody of anybody else."""
    delays = {
        (rank, peer): _delays(late, [each for other, each in peers.items() if other != peer], nics[rank].capture.epoch_ns)
        for rank, peers in links.items()
        for peer, late in peers.items()
    }
    lost = {rank: [float(found.sum()) for (_, peer), found in delays.items() if peer == rank] for rank in links}
    rank = max(sorted(lost), key=lambda rank: min(lost[rank]))
    others = max(float(found.sum()) for (_, peer), found in delays.items() if peer != rank)
    shown_by = tuple(sorted(teller for teller, peer in delays if peer == rank))
    first = delays[shown_by[0], rank]
    recurs = len(first) >= _FEWEST and float(first.max()) <= _MOST_OF_ONE * float(first.sum())
    if not recurs or min(lost[rank]) < (1 - _ALIKE) * max(lost[rank]) or others > _ALIKE * min(lost[rank]):
        return None
    nic, source = nics[shown_by[0]], f"{nics[shown_by[0]].capture.path}#peer={rank}"
    typical, share = float(np.median(first)), min(lost[rank]) / nic.span_ns
    return LateStart(rank, tuple(links), shown_by, len(first), typical, share, _load(rank, links), source)


def _load(rank: int, links: Links) -> float:
    """Bytes on the links of a rank, of the mean of all."""
    moved = {each: sum(float(link.bytes.sum()) for link in peers.values()) for each, peers in links.items()}
    return moved[rank] * len(moved) / max(sum(moved.values()), 1.0)


def _delays(late: PeerOperators, others: Sequence[PeerOperators], epoch_ns: int) -> Floats:
    """ns from when most other links of a NIC have begun, since this one ended, to its next begin: where they are many."""
    began = np.sort(np.stack([_began(late, other) for other in others]), axis=0)[len(others) // 2]
    later = (late.begin[1:] - began).astype(np.float64) * epoch_ns
    found: Floats = later[later >= _LEAST_NS]
    return found


def _began(late: PeerOperators, other: PeerOperators) -> Ints:
    """The first begin of another link after each end of one, or the next begin of that one where it is earlier."""
    at = np.searchsorted(other.begin, late.end[:-1], side="right")
    first = np.append(other.begin, np.iinfo(np.int64).max)[at]
    found: Ints = np.minimum(first, late.begin[1:])
    return found
