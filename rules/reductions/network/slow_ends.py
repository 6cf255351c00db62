"""Which end of slow links is to blame: the one that all of them share and that has no sound link of the same direction.

A link leads from one rank to another over both their NICs and the network between. A slow link alone does not tell which of
these is slow; links that share an end do, and so do sound links of one of its ends. Ranks that have a NIC together are one end,
where links of each are slow and none of them has a sound one beside.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import networkx as nx

from forensics.rules.reductions.ranks.nic_users import NicUsers

Link = tuple[int, int]
"""Sender and receiver."""

# What a slow link does to others of its ranks is small against itself.
_ECHO = 0.2


@dataclass(frozen=True, slots=True)
class Blame:
    """An end that is slow (`single`), or the two of a link; `links` are the slow links that it explains.

    An end is a rank, or those that have one NIC, or with `is_rail` NICs of one number on several hosts. `spared` are sound
    links of the other end, or of both ends of a link: what speaks against them.
    """

    ranks: tuple[int, ...]
    links: tuple[Link, ...]
    spared: tuple[Link, ...]
    single: bool = True
    is_rail: bool = False


def blamed(
    slow: Mapping[Link, float], material: Collection[Link], sound: Collection[Link], users: NicUsers
) -> tuple[Blame, ...]:
    """Explain the material ones of the slow links, weighted by what they lose; the others support or are explained along."""
    ends = _ends(slow, sound, users)
    stands = {rank: ranks[0] for rank, ranks in ends.items()}
    joined: dict[Link, float] = defaultdict(float)
    for link, weight in slow.items():
        joined[_between(link, stands)] += weight
    clean = {_between(link, stands) for link in sound} - joined.keys()
    found = _explanations(joined, {_between(link, stands) for link in material}, clean, users)
    return tuple(
        Blame(
            tuple(sorted({other for rank in blame.ranks for other in ends.get(rank, (rank,))})),
            tuple(sorted(link for link in slow if _between(link, stands) in blame.links)),
            tuple(sorted(link for link in sound if _between(link, stands) in blame.spared)),
            blame.single,
        )
        for blame in found
    )


def _ends(slow: Collection[Link], sound: Collection[Link], users: NicUsers) -> Mapping[int, tuple[int, ...]]:
    """Of ranks with slow links those that are one end; a sound link of one of them says that it is not their NIC."""
    at_slow = {rank for link in slow for rank in link}
    found: dict[int, tuple[int, ...]] = {}
    for rank in sorted(at_slow):
        together = users.together(rank, at_slow)
        ways = [{way for link in slow for way in (0, 1) if link[way] == other} for other in together]
        spared = {way for link in sound for way in (0, 1) if link[way] in together}
        alike = len(together) > 1 and set[int].intersection(*ways) and not spared & set[int]().union(*ways)
        found[rank] = together if alike else (rank,)
    return found


def _between(link: Link, stands: Mapping[int, int]) -> Link:
    """The ends of a link; what ranks on one NIC move between each other is not contracted."""
    ends = stands.get(link[0], link[0]), stands.get(link[1], link[1])
    return ends if ends[0] != ends[1] else link


def _explanations(
    slow: Mapping[Link, float], material: Collection[Link], sound: Collection[Link], users: NicUsers
) -> Iterable[Blame]:
    left, found = dict(slow), []
    while heads := [link for link in left if link in material]:
        first = max(heads, key=lambda link: (left[link], link))
        together = _connected(left, first)
        found.append(_explained(first, {link: left[link] for link in together}, slow, sound, users))
        for link in [link for link in together if link == first or _is_explained(link, found[-1])]:
            del left[link]
    return found


def _is_explained(link: Link, blame: Blame) -> bool:
    if blame.single:
        return blame.ranks[0] in link
    return link in blame.links


def _connected(links: Collection[Link], first: Link) -> tuple[Link, ...]:
    """Links that share a rank with `first`, directly or by others."""
    reached = nx.node_connected_component(nx.Graph(list(links)), first[0])
    return tuple(sorted(link for link in links if link[0] in reached))


def _explained(
    first: Link, links: Mapping[Link, float], slow: Collection[Link], sound: Collection[Link], users: NicUsers
) -> Blame:
    """The end of `first` whose slow links are several and none of whose other links is sound; else the link itself.

    `slow` are all of them, also those that are explained already: where all links of one end are slow in whatever direction,
    and the other end has a sound one, it is that one again.
    """
    clean = [rank for rank in first if _several(rank, links, users) and not _sound_beside(rank, links, sound)]
    weights = {rank: sum(links[link] for link in _of(rank, links)) for rank in clean}
    best = sorted(weights, key=lambda rank: (-weights[rank], rank))[:2]
    if best and (len(best) == 1 or weights[best[0]] > weights[best[1]]):
        own = _of(best[0], links)
        others = sorted({rank for link in own for rank in link} - {best[0]})
        return Blame((best[0],), own, tuple(link for rank in others for link in _sound_beside(rank, links, sound)))
    pair = tuple(sorted(first))
    own = tuple(link for link in links if set(link) == set(pair))
    at_sound = {rank for link in sound for rank in link}
    whole = [rank for rank in pair if rank not in at_sound and _several(rank, slow, users)]
    if len(whole) == 1 and at_sound.issuperset({*pair} - {*whole}):
        return Blame((whole[0],), own, tuple(link for link in sound if {*link} & {*pair}))
    spared = tuple(link for rank in pair for link in _sound_beside(rank, dict.fromkeys(own, 1.0), sound))
    return Blame(pair, own, spared, single=False)


def _of(rank: int, links: Collection[Link]) -> tuple[Link, ...]:
    return tuple(sorted(link for link in links if rank in link))


def _several(rank: int, links: Collection[Link], users: NicUsers) -> bool:
    """Whether slow links of a rank lead to more than one other NIC: both directions between two count once."""
    return users.are_apart({other for link in _of(rank, links) for other in link if other != rank})


def _sound_beside(rank: int, links: Mapping[Link, float], sound: Collection[Link]) -> tuple[Link, ...]:
    """Sound links of a rank in a direction in which its slow links lead; a direction with a trifle of the loss is an echo."""
    sent = sum(weight for link, weight in links.items() if link[0] == rank)
    got = sum(weight for link, weight in links.items() if link[1] == rank)
    least = _ECHO * (sent + got)
    return tuple(sorted(w for w in sound if (sent > least and w[0] == rank) or (got > least and w[1] == rank)))
