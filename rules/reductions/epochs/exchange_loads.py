"""How much of an exchange falls on each of its members, by what their NICs moved (Pulse 7.2.4, MoE expert imbalance).

Tokens travel to the ranks of their experts and back: both directions between two ranks carry what is routed to either of them,
so that the volume between two is the sum of a share of each. A mesh of four ranks and more shows whether that is so, and solves
for the shares. Rings and pipelines load one direction of a pair alone: of its two directions the smaller one is the exchange.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import NewType

import networkx as nx
import numpy as np
import numpy.typing as npt

from forensics.rules.reductions.epochs.operators import MovedByNic, NicOperators, PeerOperators
from forensics.rules.reductions.interface import reduction

Floats = npt.NDArray[np.float64]
Ends = tuple[int, int]

PARTS, _PAST = 10, 3
"""Parts of the time looked at: the newer half of them is judged, the oldest three are its past."""
# Members of a mesh: the volumes of three are always sums of shares. A graph of traffic may have cliques without end.
_FEWEST, _MOST_MESHES = 4, 4096
# Of the mean volume between two: what sums of shares may leave over.
_LEFT_OVER = 0.05
# Bytes between two in the newer half of the time: less is what programs tell each other.
_LEAST_BYTES = 1 << 20
# Of what an average part has: steps have times without an exchange, and a part with less of it shows no loads.
_LEAST_OF_PART = 0.1
# Parts in which more falls on a rank, before that is more than a few exchanges.
_LEAST_PARTS = 3


@dataclass(frozen=True, slots=True)
class ExchangeLoad:
    """A mesh of `members` and what of its exchange falls on each, relative to an even one.

    `newest` and `past` are the loads over the newer half and the oldest three tenths of the time (`past` is not a number where
    these have no exchange), `parts` those in each newer part that has one (members x parts), in the order of the members.
    `sent` are bytes per second of the newer half that each member sends in the exchange; `source` is the capture of each.
    """

    members: tuple[int, ...]
    newest: Floats
    past: Floats
    parts: Floats
    sent: Floats
    source: Mapping[int, str]


ExchangeLoads = NewType("ExchangeLoads", tuple[ExchangeLoad, ...])
"""Meshes whose volumes are sums of shares of their members, by their ranks."""


@reduction
def exchange_loads(moved: NicOperators) -> ExchangeLoads:
    """Solve each mesh for its shares; of a capture that lost something volumes tell nothing."""
    stated = [nic for nic in moved if nic.capture.whole]
    between = _between(stated)
    span_s = max((nic.span_ns for nic in stated), default=1) / 1e9
    source = {rank: nic.capture.path for nic in stated for rank in nic.capture.ranks}
    meshes = sorted(tuple(sorted(each)) for each in islice(nx.find_cliques(nx.Graph(list(between))), _MOST_MESHES))
    loads = (_load(mesh, between, span_s, source) for mesh in meshes if len(mesh) >= _FEWEST)
    return ExchangeLoads(tuple(load for load in loads if load is not None))


def _between(stated: Sequence[MovedByNic]) -> Mapping[Ends, Floats]:
    """Bytes in each part of the time that both directions between two ranks carried at least, by the lower and higher one."""
    links: dict[Ends, Floats] = defaultdict(lambda: np.zeros(PARTS))
    for nic in stated:
        for peer in nic.peers:
            ends = (peer.own, peer.peer) if peer.direction == "send" else (peer.peer, peer.own)
            links[ends] = np.maximum(links[ends], _by_part(nic, peer))
    found = {(a, b): np.minimum(volume, links[b, a]) for (a, b), volume in links.items() if a < b and (b, a) in links}
    return {ends: volume for ends, volume in found.items() if volume[PARTS // 2 :].sum() >= _LEAST_BYTES}


def _by_part(nic: MovedByNic, peer: PeerOperators) -> Floats:
    """An operator counts where its middle lies."""
    edges = np.linspace(nic.first, nic.last + 1, PARTS + 1)
    return np.histogram((peer.begin + peer.end) / 2, edges, weights=peer.bytes)[0].astype(np.float64)


def _load(
    mesh: tuple[int, ...], between: Mapping[Ends, Floats], span_s: float, source: Mapping[int, str]
) -> ExchangeLoad | None:
    """None where the volumes are no sums of shares."""
    size = len(mesh)
    volumes = np.zeros((size, size, PARTS))
    for row, column in combinations(range(size), 2):
        volumes[row, column] = volumes[column, row] = between[mesh[row], mesh[column]]
    half = PARTS // 2
    newest, past = volumes[:, :, half:].sum(2), volumes[:, :, :_PAST].sum(2)
    least = _LEAST_OF_PART * newest.sum() / (PARTS - half)
    known = past.sum() >= _PAST * least
    if not _is_sum(newest) or (known and not _is_sum(past)):
        return None
    stated = [each for part in range(half, PARTS) if (each := volumes[:, :, part]).sum() >= least]
    parts = np.stack([_relative(each) for each in stated], axis=1)
    before = _relative(past) if known else np.full(size, np.nan)
    sent = newest.sum(1) / (span_s * (PARTS - half) / PARTS)
    return ExchangeLoad(mesh, _relative(newest), before, parts, sent, source)


def _shares(volumes: Floats) -> Floats:
    """The share of each member, where what lies between two is the sum of theirs."""
    size, each = len(volumes), volumes.sum(1)
    found: Floats = (each - each.sum() / 2 / (size - 1)) / (size - 2)
    return found


def _relative(volumes: Floats) -> Floats:
    shares = _shares(volumes)
    found: Floats = shares / max(float(shares.mean()), 1.0)
    return found


def _is_sum(volumes: Floats) -> bool:
    shares = _shares(volumes)
    apart = ~np.eye(len(volumes), dtype=bool)
    left = np.abs(volumes - shares[:, None] - shares[None, :])[apart]
    return bool(left.max() <= _LEFT_OVER * volumes[apart].mean())


@dataclass(frozen=True, slots=True)
class LoadedRank:
    """One member of a mesh on which more of the exchange falls, `share` of the time longer at `rate` than in an even one."""

    rank: int
    load: float
    past: float
    share: float
    mesh: ExchangeLoad


def loaded_ranks(
    loads: Sequence[ExchangeLoad], least: float, steady: float, rates: Mapping[int, float]
) -> Iterator[LoadedRank]:
    """Members with the load `least` and `steady` in all parts but one; `rates` are those of lines (bytes per second)."""
    for mesh in loads:
        for place, rank in enumerate(mesh.members):
            lasts = int((mesh.parts[place] >= steady).sum()) >= max(mesh.parts.shape[1] - 1, _LEAST_PARTS)
            if mesh.newest[place] >= least and lasts and rank in rates:
                beyond = max(float(mesh.sent[place] - mesh.sent.mean()), 0.0) / rates[rank]
                yield LoadedRank(rank, float(mesh.newest[place]), float(mesh.past[place]), beyond, mesh)
