"""Slow links between the same two hosts: the path that these share, and not as many faults as links.

Each of them alone may be slow at either end. All that several have in common is what leads from the one host to the other: a
congested port of a switch, an uplink. A NIC of one end would be slow to other hosts as well, and is said by the rules of ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from forensics.rules.reductions.network.slow_ends import Blame, Link

HostOf = Callable[[int], str | None]
"""The host of a rank, None where it is not known."""


def on_one_path(blames: Sequence[Blame], host_of: HostOf) -> tuple[Blame, ...]:
    """One blame for links whose slow end is not known, and which lie between the same two hosts; in the order of the first."""
    together: dict[object, list[Blame]] = defaultdict(list)
    for number, blame in enumerate(blames):
        hosts = {host_of(rank) for link in blame.links for rank in link}
        is_between = not blame.single and None not in hosts and len(hosts) == 2
        together[frozenset(hosts) if is_between else number].append(blame)
    return tuple(_joined(found) if len(found) > 1 else found[0] for found in together.values())


def _joined(blames: Sequence[Blame]) -> Blame:
    ranks = tuple(sorted({rank for blame in blames for rank in blame.ranks}))
    return Blame(ranks, _all([blame.links for blame in blames]), _all([blame.spared for blame in blames]), single=False)


def _all(links: Sequence[tuple[Link, ...]]) -> tuple[Link, ...]:
    return tuple(sorted({link for each in links for link in each}))
