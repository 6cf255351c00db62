"""Slow NICs of one number on several hosts: what joins them, a rail or its switch, is nearer than as many faults."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from forensics.rules.reductions.epochs.slow_links import JudgedLinks, SlowEnd
from forensics.rules.reductions.network.slow_rails import LEAST_HOSTS, PlaceOf


def on_rail(end: SlowEnd, judged: JudgedLinks, place_of: PlaceOf) -> SlowEnd:
    """The same as a rail, where its NICs have one number on three hosts or more, and another number is sound on all of them."""
    places = [place for rank in end.ranks if (place := place_of(rank)) is not None]
    hosts, numbers = {host for host, _ in places}, {number for _, number in places}
    if not end.is_open or len(numbers) > 1 or len(hosts) < max(LEAST_HOSTS, len(end.ranks)):
        return end
    sound = {rank for link in judged if not link.is_slow for rank in link.ends}
    beside = {place[0] for rank in sound if (place := place_of(rank)) is not None and place[1] not in numbers}
    return replace(end, is_rail=sound.isdisjoint(end.ranks) and hosts <= beside)


def in_rails(ends: Sequence[SlowEnd], judged: JudgedLinks, place_of: PlaceOf) -> list[SlowEnd]:
    """NICs that are slow each by itself as one rail, where no NIC of their number is sound on any host."""
    sound = {place[1] for link in judged if not link.is_slow for rank in link.ends if (place := place_of(rank)) is not None}
    by_number: dict[int, list[SlowEnd]] = defaultdict(list)
    for end in ends:
        place = place_of(end.ranks[0]) if len(end.ranks) == 1 else None
        if place is not None and place[1] not in sound:
            by_number[place[1]].append(end)
    rails = [on_rail(united(found), judged, place_of) for found in by_number.values()]
    found = [rail for rail in rails if rail.is_rail]
    joined = {rank for rail in found for rank in rail.ranks}
    return [*found, *(end for end in ends if joined.isdisjoint(end.ranks))]


def united(ends: Sequence[SlowEnd]) -> SlowEnd:
    """All NICs of these, with all of their links."""
    links = {link.ends: link for end in ends for link in end.links}
    ranks = tuple(sorted(rank for end in ends for rank in end.ranks))
    return SlowEnd(ranks, tuple(links[key] for key in sorted(links)), all(end.both for end in ends))
