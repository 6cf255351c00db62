"""Ranks that hold up the same steps and are the two ends of a slow link: what both wait for is that, and not their work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from forensics.rules.reductions.epochs.slow_links import JudgedLinks
from forensics.rules.reductions.network.slowness import Slowness
from forensics.rules.reductions.pipeline.delay import Delay

# Of the steps that the one of them held up which held up fewer.
_SAME_STEPS = 0.5


def ends_of_slow_links(found: Sequence[Sequence[Delay]], slowness: Slowness, judged: JudgedLinks) -> frozenset[int]:
    """The ranks of delays, each of one rank alone, that were late with the other end of a slow link of theirs."""
    slow = {frozenset(link) for link in slowness.slow_links()} | {frozenset(link.ends) for link in judged if link.is_slow}
    return frozenset(rank for pair in _late_together(found) if frozenset(pair) in slow for rank in pair)


def _late_together(found: Iterable[Sequence[Delay]]) -> Iterator[tuple[int, int]]:
    alone = [each for each in found if len(each[0].ranks) == 1 and not each[0].is_transfer]
    for one, other in combinations(alone, 2):
        here, there = {delay.step for delay in one}, {delay.step for delay in other}
        if len(here & there) >= _SAME_STEPS * min(len(here), len(there)):
            yield one[0].ranks[0], other[0].ranks[0]
