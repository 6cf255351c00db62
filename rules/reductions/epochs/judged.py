"""Which of the links of one use are slow: what lacks a part of the rate that the others reach (Pulse section 6.2).

What is usual is the rate of the links that are not slow: as many as three quarters may be, where two NICs of a ring of four
are. A NIC that exchanges with several ranks at once gives each a part of its line: where all that it moves meanwhile is as
much as others move, no link of it is slow. Nor is one slow by what its line does not carry.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from forensics.rules.reductions.epochs.links import LinkRate

Ends = tuple[int, int]

_BEST = 0.75  # of what links of one use reach, the best quarter is not slow
LEAST_LOSS = 0.15
"""Of the rate: sound NICs of a job differ by a few per cent (Pulse 6.2 has 5 %), the last of sixty by three times that."""
_SPREADS = 3.0
# Times the rate of a link: what its NIC moves in all, where it has others at the same time.
_WITH_OTHERS = 1.2
_SIGMA = 1.4826  # a median deviation of what is normally distributed, as a standard deviation


@dataclass(frozen=True, slots=True)
class JudgedLink:
    """One link beside those of the same use: `usual` is what they reach (bytes per second), `peers` how many they are.

    `cost` is the share of the time that it is active for longer than it would be at the usual rate. `is_mean`: the rates of
    `link` and `usual` are those over all epochs with data. `full` are those of its ends whose NICs can move with others as
    much as any of the same use: they are not what makes it slow. Of one that `is_lossy` the rate is that of what arrives.
    """

    link: LinkRate
    usual: float
    peers: int
    is_slow: bool
    is_mean: bool = False
    full: tuple[int, ...] = ()
    is_lossy: bool = False

    @property
    def ends(self) -> Ends:
        """Sender and receiver."""
        return self.link.sender, self.link.receiver

    @property
    def part(self) -> float:
        """Of the usual rate."""
        return self.link.rate / self.usual

    @property
    def cost(self) -> float:
        """Share of the time."""
        return max(0.0, self.link.volume / self.link.rate - self.link.volume / self.usual)


def judge(links: Sequence[LinkRate]) -> Iterator[JudgedLink]:
    """Slow is what lacks a seventh of the usual rate, and more than three deviations of the others, by one of its ends.

    A link over a line that carries less than those of the usual links is held against as much less.
    """
    rates = np.array([link.rate for link in links])
    best = float(np.median(rates[rates >= np.quantile(rates, _BEST)]))
    sound = rates[rates >= (1 - LEAST_LOSS) * best]
    usual = float(np.median(sound))
    spread = _SIGMA * float(np.median(np.abs(sound - usual)))
    limit = usual - max(LEAST_LOSS * usual, _SPREADS * spread)
    parts = _parts_of_lines(links, (1 - LEAST_LOSS) * best)
    sent, got = (_best_of(links, way) for way in (0, 1))
    most = _usual_in_all([*sent.values(), *got.values()])
    for link, part in zip(links, parts, strict=True):
        can = ((link.sender, sent[link.sender]), (link.receiver, got[link.receiver]))
        full = tuple(end for end, rate in can if rate >= _least_full(link, most))
        peers = len(sound) - (link.rate >= (1 - LEAST_LOSS) * best)
        yield JudgedLink(link, part * usual, peers, link.rate < part * limit and not _is_shared(link, most), full=full)


def _parts_of_lines(links: Sequence[LinkRate], least_sound: float) -> list[float]:
    """What the line of each link carries, relative to those of the usual links; 1 where that is not known of all."""
    lines = [link.line for link in links]
    usual = [link.line for link in links if link.line and link.rate >= least_sound]
    if None in lines or not usual:
        return [1.0] * len(links)
    return [min(1.0, (line or 0.0) / median(usual)) for line in lines]


def _best_of(links: Sequence[LinkRate], way: int) -> Mapping[int, float]:
    """By sender or receiver the most that its NIC moves in all in that direction while it has one of these links."""
    found: dict[int, float] = defaultdict(float)
    for link in links:
        rank, rate = ((link.sender, link.sent), (link.receiver, link.got))[way]
        found[rank] = max(found[rank], rate)
    return found


def _usual_in_all(rates: Sequence[float]) -> float:
    """What NICs move in all in a direction, of which it is known: the best quarter of them."""
    known = np.array([rate for rate in rates if rate > 0])
    return float(np.median(known[known >= np.quantile(known, _BEST)])) if len(known) else np.inf


def _is_shared(link: LinkRate, most: float) -> bool:
    """Whether a full line explains the rate: that of one end is full for nearly as long as the link moves data.

    A link that goes on alone for long, when all others of its NICs have ended, is slow by itself.
    """
    return max(link.sent_steadily, link.got_steadily) >= _least_full(link, most)


def _least_full(link: LinkRate, most: float) -> float:
    """What a NIC moves in all that is full with much more than this link."""
    return max((1 - LEAST_LOSS) * most, _WITH_OTHERS * link.rate)
