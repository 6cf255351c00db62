"""Which end of slow links is to blame: the one that all of them share and that has no sound link of the same direction.

A link leads from one rank to another over both their NICs and the network between. A slow link alone does not tell which of
these is slow; links that share an end do, and so do sound links of one of its ends.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import networkx as nx

Link = tuple[int, int]
"""Sender and receiver."""

# What a slow link does to others of its ranks is small against itself.
_ECHO = 0.2


@dataclass(frozen=True, slots=True)
class Blame:
    """One rank whose NIC is slow, or two ranks between which the link is; `links` are the slow links that it explains.

    `spared` are sound links of the other end, or of both ends of a link: what speaks against them.
    """

    ranks: tuple[int, ...]
    links: tuple[Link, ...]
    spared: tuple[Link, ...]


def blamed(slow: Mapping[Link, float], material: Collection[Link], sound: Collection[Link]) -> tuple[Blame, ...]:
    """Explain the material ones of the slow links, weighted by what they lose; the others support or are explained along."""
    left, found = dict(slow), []
    while heads := [link for link in left if link in material]:
        first = max(heads, key=lambda link: (left[link], link))
        together = _connected(left, first)
        found.append(_explained(first, {link: left[link] for link in together}, sound))
        for link in [link for link in together if link == first or _is_explained(link, found[-1])]:
            del left[link]
    return tuple(found)


def _is_explained(link: Link, blame: Blame) -> bool:
    if len(blame.ranks) == 1:
        return blame.ranks[0] in link
    return link in blame.links


def _connected(links: Collection[Link], first: Link) -> tuple[Link, ...]:
    """Links that share a rank with `first`, directly or by others."""
    reached = nx.node_connected_component(nx.Graph(list(links)), first[0])
    return tuple(sorted(link for link in links if link[0] in reached))


def _explained(first: Link, links: Mapping[Link, float], sound: Collection[Link]) -> Blame:
    """The end of `first` whose slow links are several and none of whose other links is sound; else the link itself."""
    clean = [rank for rank in first if _several(rank, links) and not _sound_beside(rank, links, sound)]
    weights = {rank: sum(links[link] for link in _of(rank, links)) for rank in clean}
    best = sorted(weights, key=lambda rank: (-weights[rank], rank))[:2]
    if best and (len(best) == 1 or weights[best[0]] > weights[best[1]]):
        own = _of(best[0], links)
        others = sorted({rank for link in own for rank in link} - {best[0]})
        return Blame((best[0],), own, tuple(link for rank in others for link in _sound_beside(rank, links, sound)))
    pair = tuple(sorted(first))
    own = tuple(link for link in links if set(link) == set(pair))
    return Blame(pair, own, tuple(link for rank in pair for link in _sound_beside(rank, dict.fromkeys(own, 1.0), sound)))


def _of(rank: int, links: Collection[Link]) -> tuple[Link, ...]:
    return tuple(sorted(link for link in links if rank in link))


def _several(rank: int, links: Collection[Link]) -> bool:
    """Whether slow links of a rank lead to more than one other rank: both directions between two ranks count once."""
    return len({other for link in _of(rank, links) for other in link} - {rank}) > 1


def _sound_beside(rank: int, links: Mapping[Link, float], sound: Collection[Link]) -> tuple[Link, ...]:
    """Sound links of a rank in a direction in which its slow links lead; a direction with a trifle of the loss is an echo."""
    sent = sum(weight for link, weight in links.items() if link[0] == rank)
    got = sum(weight for link, weight in links.items() if link[1] == rank)
    least = _ECHO * (sent + got)
    return tuple(sorted(w for w in sound if (sent > least and w[0] == rank) or (got > least and w[1] == rank)))
