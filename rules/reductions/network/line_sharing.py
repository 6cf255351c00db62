"""Whether flows that are slow at one end share the line of its NIC: twice as many as elsewhere, each at half the rate."""

from __future__ import annotations

from collections.abc import Collection

from forensics.rules.reductions.network.pair_rates import PairRate
from forensics.rules.reductions.network.slow_ends import Blame, Link
from forensics.rules.reductions.network.slowness import Slowness

# A NIC that lost half of its rate looks the same to flows that take turns, but not in its other direction.
_FLOWS = 2
# Of what as many ranks move elsewhere with one flow each: together they move that, and none is slower than sharing makes it.
_LEAST_TOGETHER, _MOST_SLOWDOWN = 0.95, 2.2

SHARED = (
    "two flows of each of its ranks go over the line of the NIC in one direction, and together they move what one moves on "
    "other NICs; in the other direction it is as fast as others: they share the line"
)


def shares_its_line(blame: Blame, slowness: Slowness, sound: Collection[Link]) -> bool:
    """Whether the links of an end, all in one direction and counted by work requests, add up to what others move."""
    end = {*blame.ranks}
    inward = [link for link in blame.links if link[1] in end]
    outward = [link for link in blame.links if link[0] in end]
    pairs = [pair for link in blame.links if (pair := slowness.pair(*link)) is not None]
    if not blame.single or blame.is_rail or (inward and outward) or len(pairs) < len(blame.links):
        return False
    is_spared = any((receiver if outward else sender) in end for sender, receiver in sound)
    return len(pairs) == _FLOWS * len(end) and is_spared and _add_up(pairs, len(end))


def _add_up(pairs: Collection[PairRate], ranks: int) -> bool:
    usual = ranks * max(pair.usual_rate for pair in pairs)
    together = sum(pair.rate for pair in pairs)
    return together >= _LEAST_TOGETHER * usual and all(pair.slowdown <= _MOST_SLOWDOWN for pair in pairs)
