"""Which links are slower than links of the same use, and whose NICs that accuses.

Links that move about the same volume in the same time are of one use: the same step of a ring, or the same exchange. A ring
stands still for its slowest member, so that a slow NIC does not change the volumes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import NewType

import networkx as nx

from forensics.rules.reductions.epochs.judged import LEAST_LOSS, Ends, JudgedLink, judge
from forensics.rules.reductions.epochs.links import LinkRate, LinkRates
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.nic_users import CapturedUsers

# Volumes of links of one use are this near to each other; a ring moves the same, an uneven exchange nearly the same.
_ALIKE = 1.2
_FEWEST = 4
# Of the largest loss: links that lose nearly as much are as slow.
_NEARLY = 0.25
# Times the rate at which slices come to a NIC: where more leaves, it hands on what comes late. A slow one is so both ways.
_HANDS_ON = 1.08
# Over all epochs with data a link lacks more before it is slow, and a fifth against the best link that its data reaches: all
# links of a ring have gaps where one of it makes them.
_LEAST_MEAN_LOSS, _LEAST_WITHIN = 0.25, 0.2
# Of the ranks: gaps that so many NICs leave are how the job sends, whatever the others do.
_MOST_BY_MEAN = 0.25


JudgedLinks = NewType("JudgedLinks", tuple[JudgedLink, ...])
"""Links that have others to be compared with."""


@reduction
def judged_links(rates: LinkRates, users: CapturedUsers) -> JudgedLinks:
    """Compare every link with those of its use: by its busiest epochs, and by all with data where these tell nothing.

    Links are those between NICs. What a rank of a NIC with several moves depends on whether the others move something too, and
    what all of them move together on how many do: such a link is slow where both say so of it, and of all its ranks.
    """
    judged = tuple(judged for links in uses(rates.nics) for judged in _of_use(links, is_shared=bool(rates.shared)))
    if any(link.is_lossy for link in rates.nics):
        return JudgedLinks(tuple(_with_losses(judged, rates.nics)))
    if not rates.shared:
        return JudgedLinks(judged)
    slow: dict[Ends, bool] = defaultdict(lambda: True)
    for each in (each for links in uses(rates.links) for each in judge(links)):
        slow[users.first(each.link.sender), users.first(each.link.receiver)] &= each.is_slow
    return JudgedLinks(tuple(replace(each, is_slow=each.is_slow and slow.get(each.ends, False)) for each in judged))


def sound_beside_slow(judged: JudgedLinks) -> Set[Ends]:
    """Links that captures show to be as fast as others while they show which ones are slow: what waits there only queues."""
    return {each.ends for each in judged if not each.is_slow} if any(each.is_slow for each in judged) else set()


def _with_losses(judged: Iterable[JudgedLink], links: Iterable[LinkRate]) -> Iterator[JudgedLink]:
    """Links that lose data, beside those that do not: what is resent is the nearer account of all that is slow meanwhile."""
    by_ends = {each.ends: each for each in judged}
    for link in links:
        each = by_ends.get((link.sender, link.receiver)) or JudgedLink(link, link.rate, 0, is_slow=False)
        kept = replace(each.link, rate=each.usual * (link.arrived or 1.0)) if link.is_lossy else each.link
        yield replace(each, link=kept, is_slow=link.is_lossy, is_lossy=link.is_lossy, full=())


def _of_use(links: Sequence[LinkRate], is_shared: bool = False) -> list[JudgedLink]:
    by_peak = list(judge(links))
    if is_shared or any(link.is_slow for link in by_peak):
        return by_peak
    by_mean = _judged_by_mean(links)
    slow = {link.ends for link in by_mean if link.is_slow}
    is_of_nics = bool(_candidates({link.ends: link for link in by_mean}, slow, several_ways=True))
    return by_mean if is_of_nics and _are_few(by_mean) else by_peak


def _are_few(judged: Sequence[JudgedLink]) -> bool:
    """Whether a NIC, the two of a link, or a part of all account for the slow links."""
    accused = {rank for end in slow_ends(judged) for rank in end.ranks}
    ranks = {rank for link in judged for rank in link.ends}
    return len(accused) <= max(2, _MOST_BY_MEAN * len(ranks))


def _judged_by_mean(links: Sequence[LinkRate]) -> list[JudgedLink]:
    """Slow are those links of a ring or exchange that lose most over all epochs with data, where others of it lose less."""
    judged = {
        each.ends: replace(each, is_slow=False, is_mean=True)
        for each in judge([replace(link, rate=max(link.active_rate, 1.0), sent=0.0, got=0.0) for link in links])
    }
    for together in _connected(judged):
        best = max(judged[ends].part for ends in together)
        lowest = min(judged[ends].part for ends in together)
        if lowest < min(1 - _LEAST_MEAN_LOSS, (1 - _LEAST_WITHIN) * best):
            judged |= {ends: replace(judged[ends], is_slow=True) for ends in _deepest(judged, together)}
    return list(judged.values())


def uses(links: Sequence[LinkRate]) -> Iterator[list[LinkRate]]:
    """Links of one use: in the order of their volume, until one moves much more than the one before it."""
    ordered = sorted(links, key=lambda link: (link.volume, link.sender, link.receiver))
    breaks = [at for at in range(1, len(ordered)) if ordered[at].volume > _ALIKE * ordered[at - 1].volume]
    for begin, end in zip([0, *breaks], [*breaks, len(ordered)], strict=True):
        if end - begin >= _FEWEST:
            yield ordered[begin:end]


@dataclass(frozen=True, slots=True)
class SlowEnd:
    """Ranks whose NICs account for slow links: one, all of a host (`is_host`) or of a rail (`is_rail`), or several of which one
    is to blame (`is_open`).

    `both` says that what it sends and what it receives is slow.
    """

    ranks: tuple[int, ...]
    links: tuple[JudgedLink, ...]
    both: bool
    is_host: bool = False
    is_rail: bool = False

    @property
    def is_open(self) -> bool:
        """Whether only one of the ranks is to blame."""
        return len(self.ranks) > 1 and not self.is_host and not self.is_rail


def slow_ends(judged: Iterable[JudgedLink]) -> list[SlowEnd]:
    """The fewest NICs whose slowness accounts for all slow links, in the order of their ranks.

    A NIC can be slow where every link of it in a direction is. One that is slow in both directions is believed first, as a
    fault of NIC, PCIe or path to the switch is in both; then one that is slow towards several. Where epochs are too long,
    links between sound NICs seem slow too, less so: what two may be to blame for is explained by the slowest links, if they
    are enough.
    """
    known = {link.ends: link for link in judged}
    slow = {ends for ends, link in known.items() if link.is_slow}
    found, left = _accounted(known, slow)
    for together in _connected(left):
        if _is_echo(known, found, together):
            continue
        deepest = _deepest(known, together)
        further, rest = _accounted(known, deepest)
        others = min((known[ends].part for ends in together if ends not in deepest), default=0.0)
        plain = min(known[ends].part for ends in deepest) < (1 - LEAST_LOSS) * others
        found += further if not rest else [_one_of(known, sorted(deepest) if plain else together)]
    return sorted(_without_behind(known, found), key=lambda end: end.ranks)


def _without_behind(known: Mapping[Ends, JudgedLink], found: Sequence[SlowEnd]) -> Iterator[SlowEnd]:
    """NICs that are slow both ways; for one that only hands on what comes late the link before it, where no other NIC is named
    there.
    """
    named = {rank for end in found for rank in end.ranks}
    for end in found:
        before = [ends for ends in known if ends[1] == end.ranks[0]]
        if end.is_open or not end.both or not _hands_on(known, end.ranks[0]):
            yield end
        elif before[0][0] not in named:
            yield _one_of(known, before)


def _accounted(known: Mapping[Ends, JudgedLink], slow: set[Ends]) -> tuple[list[SlowEnd], set[Ends]]:
    """NICs without which some slow link has no account, and the links that they leave over."""
    left, found = set(slow), list[SlowEnd]()
    for several_ways in (True, False):
        candidates = _candidates(known, slow, several_ways)
        for rank in _necessary(candidates, left):
            mine = candidates[rank]
            found.append(SlowEnd((rank,), tuple(known[ends] for ends in sorted(mine)), several_ways))
        left -= {link.ends for end in found for link in end.links}
    return found, left


def _connected(links: Iterable[Ends]) -> list[list[Ends]]:
    graph = nx.Graph(list(links))
    parts = sorted(sorted(part) for part in nx.connected_components(graph))
    return [sorted(ends for ends in links if ends[0] in part) for part in parts]


def _is_echo(known: Mapping[Ends, JudgedLink], found: Sequence[SlowEnd], links: Sequence[Ends]) -> bool:
    """Whether links may be slow only because a NIC that was named, and loses much more, leaves others short of slices."""
    graph = nx.Graph(list(known))
    reached = nx.node_connected_component(graph, links[0][0])
    lowest = min(known[ends].part for ends in links)
    return any(end.ranks[0] in reached and min(link.part for link in end.links) < (1 - LEAST_LOSS) * lowest for end in found)


def _deepest(known: Mapping[Ends, JudgedLink], links: Sequence[Ends]) -> set[Ends]:
    """Links that lose nearly as much as the one that loses most."""
    lowest = min(known[ends].part for ends in links)
    return {ends for ends in links if known[ends].part - lowest <= _NEARLY * (1 - lowest)}


def _one_of(known: Mapping[Ends, JudgedLink], links: Sequence[Ends]) -> SlowEnd:
    """The ends of links, without those whose NICs can do more; where all can, it is between them."""
    every = {rank for ends in links for rank in ends}
    ranks = tuple(sorted({rank for ends in links for rank in ends if rank not in known[ends].full} or every))
    both = all(any(ends[way] in ranks for ends in links) for way in (0, 1))
    return SlowEnd(ranks, tuple(known[ends] for ends in links), both)


def _candidates(known: Mapping[Ends, JudgedLink], slow: set[Ends], several_ways: bool) -> dict[int, set[Ends]]:
    """Links of each rank that may be slow by its NIC: all of them both ways, or all of them in one direction, and several."""
    found: dict[int, set[Ends]] = {}
    for rank in sorted({rank for ends in slow for rank in ends}):
        ways = [{ends for ends in known if ends[way] == rank} for way in (0, 1)]
        whole = [links for links in ways if links and links <= slow and not any(rank in known[ends].full for ends in links)]
        mine = set().union(*whole)
        others = {other for ends in mine for other in ends} - {rank}
        if len(others) > 1 and (len(whole) == len(ways) or not several_ways):
            found[rank] = mine
    return found


def _hands_on(known: Mapping[Ends, JudgedLink], rank: int) -> bool:
    """Whether in a ring slices come to a NIC more slowly than they leave it: behind a slow link its own seems slow too.

    In epochs longer than the time between two slices it has the gaps in its rate, less so from NIC to NIC.
    """
    ways = [[each.part for ends, each in known.items() if ends[way] == rank] for way in (1, 0)]
    return [len(parts) for parts in ways] == [1, 1] and ways[1][0] > _HANDS_ON * ways[0][0]


def _necessary(candidates: Mapping[int, set[Ends]], slow: set[Ends]) -> list[int]:
    """Candidates without which some slow link of theirs has no other candidate."""
    left = {rank: links & slow for rank, links in candidates.items()}
    return sorted(
        rank
        for rank, links in left.items()
        if any(all(rank == other or ends not in theirs for other, theirs in left.items()) for ends in links)
    )
