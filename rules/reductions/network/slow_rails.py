"""Slow links of several hosts that all have an end on NICs of one number: one rail, and not as many faults as hosts.

NICs of one number meet below a switch of their own where a network has rails, and have the same place on every host. In a ring
each link of a channel leads from one number to another one, so that both rails have all of its links: where a link shows which
of its ends is slow, it shows the rail.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import networkx as nx

from forensics.rules.reductions.network.slow_ends import Blame, Link
from forensics.rules.reductions.ranks.nic_users import NicUsers
from forensics.rules.reductions.ranks.roster import Roster

Place = tuple[str, int]
"""A host, and the number of a NIC among those of its ranks."""
PlaceOf = Callable[[int], Place | None]

LEAST_HOSTS = 3
"""Hosts whose NICs of one number would have to be slow at once by chance."""


def places_of_nics(roster: Roster, users: NicUsers) -> PlaceOf:
    """Where the NIC of a rank is: NICs of a host are taken to have the order of its ranks, also of those that left nothing."""
    ranks: dict[str, list[int]] = defaultdict(list)
    for rank, host in sorted(roster.hosts.items()):
        if host:
            ranks[host].append(rank)
    slots = _slots(ranks)
    # Ranks that have a NIC together on one host have it on all, also where the first of them left nothing.
    joined = nx.Graph([(slots[rank], slots[other]) for rank in slots for other in users.of([rank]) if other in slots])
    number = {slot: min(together) for together in nx.connected_components(joined) for slot in together}
    known = {rank: (host, number[slots[rank]]) for host, found in ranks.items() for rank in found}
    return known.get


def _slots(ranks: Mapping[str, Sequence[int]]) -> dict[int, int]:
    """The place of each rank on its host: in blocks of equal size where all hosts have such, else among the known ones."""
    size = max(map(len, ranks.values()), default=1)
    if all(found[0] // size == found[-1] // size for found in ranks.values()):
        return {rank: rank % size for found in ranks.values() for rank in found}
    return {rank: slot for found in ranks.values() for slot, rank in enumerate(found)}


def on_one_rail(
    blames: Sequence[Blame], sound: Collection[Link], place_of: PlaceOf, slow: Collection[Link] = ()
) -> tuple[Blame, ...]:
    """One blame for all where exactly one number of NIC has an end of each, on several hosts, and nothing clears any.

    `slow` are all slow links, also those that cost too little to blame anybody.
    """
    rails = {place[1] for blame in blames for rank in blame.ranks if (place := place_of(rank))}
    found = [joined for rail in sorted(rails) if (joined := _joined(blames, rail, sound, place_of, slow)) is not None]
    return (found[0],) if len(found) == 1 else tuple(blames)


def _joined(
    blames: Sequence[Blame], rail: int, sound: Collection[Link], place_of: PlaceOf, slow: Collection[Link]
) -> Blame | None:
    ends = [_at(rail, blame.ranks, place_of) for blame in blames]
    # Of a link exactly one end is on the rail, or it tells none; who is known to be slow by itself is on it.
    parts = zip(ends, blames, strict=True)
    is_on = all(own >= {*blame.ranks} if blame.single else len(own) == 1 for own, blame in parts)
    links = tuple(sorted({link for blame in blames for link in blame.links}))
    along = _along(rail, links, sound, place_of)
    if not along and slow and (along := _along(rail, slow, sound, place_of)):
        links = tuple(sorted(slow))
    named = along or set[int]().union(*ends)
    hosts = {place[0] for rank in named if (place := place_of(rank))}
    if not (is_on or along) or len(blames) < 2 or len(hosts) < LEAST_HOSTS:
        return None
    at_sound = {rank for link in sound for rank in link}
    if named & at_sound:
        return None  # a NIC that is slow by its rail has no sound link, in whatever direction
    # So are those of its number that have slow links alone, be it with these.
    ranks = tuple(sorted(named | (_at(rail, {rank for link in slow for rank in link}, place_of) - at_sound)))
    spared = tuple(sorted({link for blame in blames for link in blame.spared if not {*link} & {*ranks}}))
    return replace(blames[0], ranks=ranks, links=links, spared=spared, single=True, is_rail=True)


def _along(rail: int, links: Collection[Link], sound: Collection[Link], place_of: PlaceOf) -> set[int]:
    """The NICs of a rail where all links lie along it and each of them sends and receives slowly; else none.

    Every second NIC of such a ring accounts for all of them, and so do the others. So NICs of other numbers have to be sound
    on all of their hosts. The two at the ends of a chain may show one direction only, where no two NICs account for all links.
    """
    found = {rank for link in links for rank in link}
    hosts = {place[0] for rank in found if (place := place_of(rank))}
    beside = {place[0] for link in sound for rank in link if (place := place_of(rank)) and place[1] != rail}
    both_ways = {sender for sender, _ in links} == {receiver for _, receiver in links} == found
    several = len(nx.max_weight_matching(nx.Graph(list(links)), maxcardinality=True)) >= LEAST_HOSTS
    return found if (both_ways or several) and _at(rail, found, place_of) == found and hosts <= beside else set()


def _at(rail: int, ranks: Collection[int], place_of: PlaceOf) -> set[int]:
    """Which of some ranks have NICs of this number."""
    return {rank for rank in ranks if (place := place_of(rank)) and place[1] == rail}
