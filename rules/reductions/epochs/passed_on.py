"""NICs that only come behind a far slower one: inside hosts a ring goes on from NIC to NIC, and their slices come late."""

from __future__ import annotations

from collections.abc import Sequence

from forensics.rules.reductions.epochs.slow_links import SlowEnd
from forensics.rules.reductions.epochs.volumes import LinkCalls

# Links of a NIC in a ring; of the rate of one that is named there, what another one reaches that leaves it short of slices.
_OF_A_RING, _FAR_SLOWER = 2, 0.5


def not_passed_on(ends: Sequence[SlowEnd], calls: LinkCalls) -> list[SlowEnd]:
    """Those without NICs of one link each way where another one, far slower, may have a part in the same calls."""
    return [end for end in ends if not any(_hands_on(other, end, calls) for other in ends)]


def _hands_on(slower: SlowEnd, end: SlowEnd, calls: LinkCalls) -> bool:
    lowest, parts = min(link.part for link in slower.links), [link.part for link in end.links]
    is_far = lowest < _FAR_SLOWER * min(parts) and len(parts) <= _OF_A_RING and len(end.ranks) == 1
    return is_far and any(calls.may_be_joined(one.ends, other.ends) for one in slower.links for other in end.links)
