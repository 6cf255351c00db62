"""Hosts of which nearly all NICs are slower with everybody than those of other hosts: traffic of others, or the host itself.

What takes from all NICs of a host takes more from some than from others: seen one by one, some pass for sound, and links
between others wait for them. What a NIC can do is what it reaches with the best of its peers, beside the best of its ring or
exchange; NICs of one host that all lack something do so for a reason that they have in common (Pulse 6.2 and 7.2.1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np

from forensics.rules.reductions.epochs.judged import LEAST_LOSS, JudgedLink

# NICs of a host, and of a ring or exchange: of fewer nothing is in common, or nobody is beside.
_FEWEST_NICS, _FEWEST_MEMBERS = 4, 3
# Of the best rate: what a sound NIC lacks at most (Pulse 6.2), and how many NICs of a slow host may lack less.
_SOUND, _MAY_BE_SOUND = 0.05, 0.25


@dataclass(frozen=True, slots=True)
class SlowHost:
    """A host of whose `ranks` (one a NIC) the typical one reaches `part` of the best rate, with the `links` of all of them.

    `lacking` is the number of NICs that reach less than sound ones do.
    """

    host: str
    ranks: tuple[int, ...]
    part: float
    lacking: int
    links: tuple[JudgedLink, ...]


def slow_hosts(judged: Sequence[JudgedLink], hosts: Mapping[int, str | None]) -> list[SlowHost]:
    """Such hosts in order, where they are fewer than the others; `hosts` are those of ranks."""
    reached = _reached(judged)
    by_host: dict[str, list[int]] = defaultdict(list)
    for rank in sorted(reached):
        if host := hosts.get(rank):
            by_host[host].append(rank)
    found = [_host(host, ranks, reached, judged) for host, ranks in sorted(by_host.items()) if _is_slow(ranks, reached)]
    found = [host for host in found if not _waits_for_another(host, judged)]
    return found if found and 2 * len(found) <= len(by_host) else []


def _waits_for_another(host: SlowHost, judged: Sequence[JudgedLink]) -> bool:
    """Whether a NIC elsewhere that loses much more, with everybody outside the host, leaves its NICs short of slices."""
    joined, best = nx.Graph([link.ends for link in judged]), defaultdict[int, float](float)
    for link in (link for link in judged if not {*link.ends} & {*host.ranks}):
        for rank in link.ends:
            best[rank] = max(best[rank], 1.0 if rank in link.full else link.part)
    slower = (rank for rank, part in best.items() if part < (1 - LEAST_LOSS) * host.part)
    return any(nx.has_path(joined, rank, own) for rank in slower for own in host.ranks)


def _reached(judged: Sequence[JudgedLink]) -> Mapping[int, float]:
    """By rank the most that a link of its NIC reaches, of the best of the ring or exchange; all where it is full beside it."""
    best: dict[int, float] = defaultdict(float)
    for links in _together(judged):
        top = max(link.link.rate for link in links)
        for rank, each in ((rank, link) for link in links for rank in link.ends):
            best[rank] = max(best[rank], 1.0 if rank in each.full else each.link.rate / top)
    return best


def _together(judged: Sequence[JudgedLink]) -> Iterator[list[JudgedLink]]:
    """Links of one use between NICs that data of each other reaches."""
    uses: dict[tuple[float, bool], list[JudgedLink]] = defaultdict(list)
    for link in judged:
        uses[link.usual, link.is_mean].append(link)
    for links in uses.values():
        for members in nx.connected_components(nx.Graph([link.ends for link in links])):
            if len(members) >= _FEWEST_MEMBERS:
                yield [link for link in links if link.ends[0] in members]


def _is_slow(ranks: Sequence[int], reached: Mapping[int, float]) -> bool:
    parts = np.array([reached[rank] for rank in ranks])
    sound = int((parts >= 1 - _SOUND).sum())
    return len(parts) >= _FEWEST_NICS and sound <= _MAY_BE_SOUND * len(parts) and float(np.median(parts)) < 1 - LEAST_LOSS


def _host(host: str, ranks: Sequence[int], reached: Mapping[int, float], judged: Sequence[JudgedLink]) -> SlowHost:
    parts = np.array([reached[rank] for rank in ranks])
    links = tuple(link for link in judged if {*link.ends} & {*ranks})
    return SlowHost(host, tuple(ranks), float(np.median(parts)), int((parts < 1 - _SOUND).sum()), links)
