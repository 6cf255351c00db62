"""Which end of slow ways is to blame: the one that all of them share and that has no sound way of the same direction.

A way leads from one rank to another over both their NICs and the network between. A slow way alone does not tell which of
these is slow; ways that share an end do, and so do sound ways of one of its ends.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

Way = tuple[int, int]
"""Sender and receiver."""

# What a slow way does to others of its ranks is small against itself.
_ECHO = 0.2


@dataclass(frozen=True, slots=True)
class Blame:
    """One rank whose NIC is slow, or two ranks between which the way is; `ways` are the slow ways that it explains.

    `spared` are sound ways of the other end, or of both ends of a link: what speaks against them.
    """

    ranks: tuple[int, ...]
    ways: tuple[Way, ...]
    spared: tuple[Way, ...]


def blamed(slow: Mapping[Way, float], material: Collection[Way], sound: Collection[Way]) -> tuple[Blame, ...]:
    """Explain the material ones of the slow ways, weighted by what they lose; the others support or are explained along."""
    left, found = dict(slow), []
    while heads := [way for way in left if way in material]:
        first = max(heads, key=lambda way: (left[way], way))
        together = _connected(left, first)
        found.append(_explained(first, {way: left[way] for way in together}, sound))
        for way in [way for way in together if way == first or _is_explained(way, found[-1])]:
            del left[way]
    return tuple(found)


def _is_explained(way: Way, blame: Blame) -> bool:
    if len(blame.ranks) == 1:
        return blame.ranks[0] in way
    return way in blame.ways


def _connected(ways: Collection[Way], first: Way) -> tuple[Way, ...]:
    """Ways that share a rank with `first`, directly or by others."""
    reached = set(first)
    while grown := {rank for way in ways if reached & set(way) for rank in way} - reached:
        reached |= grown
    return tuple(sorted(way for way in ways if way[0] in reached))


def _explained(first: Way, ways: Mapping[Way, float], sound: Collection[Way]) -> Blame:
    """The end of `first` whose slow ways are several and none of whose other ways is sound; else the link itself."""
    clean = [rank for rank in first if _several(rank, ways) and not _sound_beside(rank, ways, sound)]
    weights = {rank: sum(ways[way] for way in _of(rank, ways)) for rank in clean}
    best = sorted(weights, key=lambda rank: (-weights[rank], rank))[:2]
    if best and (len(best) == 1 or weights[best[0]] > weights[best[1]]):
        own = _of(best[0], ways)
        others = sorted({rank for way in own for rank in way} - {best[0]})
        return Blame((best[0],), own, tuple(way for rank in others for way in _sound_beside(rank, ways, sound)))
    pair = tuple(sorted(first))
    own = tuple(way for way in ways if set(way) == set(pair))
    return Blame(pair, own, tuple(way for rank in pair for way in _sound_beside(rank, dict.fromkeys(own, 1.0), sound)))


def _of(rank: int, ways: Collection[Way]) -> tuple[Way, ...]:
    return tuple(sorted(way for way in ways if rank in way))


def _several(rank: int, ways: Collection[Way]) -> bool:
    """Whether slow ways of a rank lead to more than one other rank: both directions of one link are one way."""
    return len({other for way in _of(rank, ways) for other in way} - {rank}) > 1


def _sound_beside(rank: int, ways: Mapping[Way, float], sound: Collection[Way]) -> tuple[Way, ...]:
    """Sound ways of a rank in a direction in which its slow ways lead; a direction with a trifle of the loss is an echo."""
    sent = sum(weight for way, weight in ways.items() if way[0] == rank)
    got = sum(weight for way, weight in ways.items() if way[1] == rank)
    least = _ECHO * (sent + got)
    return tuple(sorted(w for w in sound if (sent > least and w[0] == rank) or (got > least and w[1] == rank)))
