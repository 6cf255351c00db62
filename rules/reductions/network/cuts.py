"""Slow links that have no host in common and lie between the same two sets of hosts: what joins these is slow, not the hosts.

Ranks below one switch reach those below another over its uplinks. Where these are slow, every link between the two sets is, and
none inside a set; a slow host would make links of its own slow alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import networkx as nx

from forensics.model import Anomaly, Belief, Cause, Confidence, Evidence, Finding, Granularity, Impact, Mechanism, StageRef
from forensics.rules.reductions.network.slow_ends import Link

_SHOWN = 8
"""Hosts of a side that are said by name."""
HostOf = Callable[[int], str | None]
"""The host of a rank, None where it is not known."""

Pair = frozenset[str]
Sides = tuple[tuple[str, ...], tuple[str, ...]]

# As many hosts, or pairs of hosts, would have to be slow at once: less is two faults as well.
_LEAST_APART = 3
# Of the usual loss of the slow links: those that lose less may wait for the others.
_AS_SLOW = 0.5


@dataclass(frozen=True, slots=True)
class Cut:
    """Two sets of hosts, each in order, and the slow links between them; what loses less than `least` may wait for these."""

    sides: Sides
    links: tuple[Link, ...]
    least: float

    def finding(self, stage: StageRef, impact: Impact, evidence: Iterable[Evidence]) -> Finding:
        """What joins two sets of hosts is slow: no rank is named for it."""
        first, second = map(_shown, self.sides)
        why = f"every link between {first} and {second} that was judged is slow, and no host is an end of all of them"
        return Finding(
            ranks=(),
            cause=Cause.NETWORK_SLOW,
            stage=stage,
            belief=Belief.GROUP_SYMPTOM,
            confidence=Confidence.SUSPECT,
            evidence=(Evidence(why), *evidence),
            granularity=Granularity.JOB,
            anomaly=Anomaly.FAIL_SLOW,
            mechanism=Mechanism("slow_flow", "unknown"),
            impact=impact,
            next_steps=(f"check the switches and uplinks between {first} and {second}",),
        )


def cuts(slow: Mapping[Link, float], sound: Iterable[Link], host_of: HostOf) -> list[Cut]:
    """The cuts that account for the slowest links, by what each loses; a sound link between the sides speaks against one.

    Hosts that reach each other well are of one side, unless that would join what slow links part: links that are compared
    with such as are all between the sides pass for sound.
    """
    least = _AS_SLOW * median(slow.values()) if slow else 0.0
    between = {link: pair for link, lost in slow.items() if lost >= least and (pair := _hosts(link, host_of))}
    clear = {pair for link in sound if (pair := _hosts(link, host_of))}
    parts = set(between.values())
    sides = _sides(parts, clear - parts) or _sides(parts, set())
    return [
        Cut(side, tuple(sorted(link for link, pair in between.items() if pair <= {*side[0], *side[1]})), least)
        for side in sides
        if _is_cut(side, parts, clear)
    ]


def _shown(hosts: Sequence[str]) -> str:
    more = f" (+{len(hosts) - _SHOWN} more)" if len(hosts) > _SHOWN else ""
    return ", ".join(hosts[:_SHOWN]) + more


def _sides(parts: Collection[Pair], clear: Collection[Pair]) -> list[Sides]:
    """Two sides for each set of hosts that slow pairs tie together; none where clear pairs join what they part."""
    joined = nx.Graph([*map(tuple, clear), *((host, host) for pair in parts for host in pair)])
    cluster = {host: min(hosts) for hosts in nx.connected_components(joined) for host in hosts}
    tied = nx.Graph([tuple(cluster[host] for host in pair) for pair in parts])
    components = [tied.subgraph(nodes) for nodes in nx.connected_components(tied)]
    if not all(nx.is_bipartite(component) for component in components):
        return []
    return [_ordered(nx.bipartite.sets(component), cluster) for component in components]


def _ordered(colours: Iterable[Collection[str]], cluster: Mapping[str, str]) -> Sides:
    first, second = sorted(tuple(sorted(h for h, of in cluster.items() if of in colour)) for colour in colours)
    return first, second


def _is_cut(sides: Sides, parts: Collection[Pair], clear: Collection[Pair]) -> bool:
    """Whether no sound link is between the sides but slow ones of several hosts at once."""
    across = {frozenset((one, other)) for one in sides[0] for other in sides[1]}
    slow = nx.Graph([tuple(pair) for pair in across & set(parts)])
    met = {*map(frozenset, slow.edges)}
    return len(nx.max_weight_matching(slow)) >= _LEAST_APART and met.isdisjoint(clear)


def _hosts(link: Link, host_of: HostOf) -> frozenset[str] | None:
    """The two hosts of a link; None inside a host, and where one is not known."""
    hosts = frozenset(host for rank in link if (host := host_of(rank)) is not None)
    return hosts if len(hosts) == len(link) else None
